// A libp2p peer of canvas-js's packages that speaks floodsub on one topic, and has no log: it publishes what the test that
// drives it by lines (answer.mjs) asks for, and reports what comes.

import { noise } from "@chainsafe/libp2p-noise";
import { yamux } from "@chainsafe/libp2p-yamux";
import { floodsub } from "@libp2p/floodsub";
import { identify } from "@libp2p/identify";
import { webSockets } from "@libp2p/websockets";
import { all } from "@libp2p/websockets/filters";
import { multiaddr } from "@multiformats/multiaddr";
import { createLibp2p } from "libp2p";

// Each public method but `open` is a command.
export class Floodsub {
  #libp2p;
  #topic;

  constructor(libp2p, topic) {
    this.#libp2p = libp2p;
    this.#topic = topic;
  }

  // report: takes an event, {event, ...}
  static async open({ topic }, report) {
    const libp2p = await createLibp2p({
      addresses: { listen: ["/ip4/127.0.0.1/tcp/0/ws"] },
      transports: [webSockets({ filter: all })],
      connectionMonitor: { enabled: false },
      streamMuxers: [yamux()],
      connectionEncrypters: [noise()],
      services: {
        // As canvas-js has it.
        identify: identify({ protocolPrefix: "canvas" }),
        pubsub: floodsub({ globalSignaturePolicy: "StrictNoSign" }),
      },
    });
    const { pubsub } = libp2p.services;
    // It drops messages that name no author, as all are under StrictNoSign: its own, too.
    const { decodeRpc } = pubsub;
    pubsub.decodeRpc = function (bytes) {
      const rpc = decodeRpc.call(this, bytes);
      for (const message of rpc.messages) message.from ??= new Uint8Array();
      return rpc;
    };
    pubsub.addEventListener("message", ({ detail }) => report({ event: "data", data: detail.data }));
    pubsub.addEventListener("subscription-change", ({ detail: { peerId, subscriptions } }) => {
      for (const { topic: theirs, subscribe } of subscriptions) {
        if (theirs === topic && subscribe) report({ event: "subscribed", peer: peerId.toString() });
      }
    });
    pubsub.subscribe(topic);
    return new Floodsub(libp2p, topic);
  }

  // Returns the addresses at which it listens, with its peer id.
  async addresses() {
    return this.#libp2p.getMultiaddrs().map(String);
  }

  // Returns the peer's id.
  async dial({ address }) {
    const connection = await this.#libp2p.dial(multiaddr(address));
    return connection.remotePeer.toString();
  }

  // Returns how many peers it was sent to.
  async publish({ data }) {
    const { recipients } = await this.#libp2p.services.pubsub.publish(this.#topic, data);
    return recipients.length;
  }

  // The ids of the peers that are connected.
  async peers() {
    return this.#libp2p.getPeers().map(String);
  }

  async close() {
    await this.#libp2p.stop();
  }
}
