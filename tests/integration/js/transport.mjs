// A libp2p peer of canvas-js's packages that runs no protocol but what libp2p needs: it carries the bytes of one protocol
// between other peers and the test that drives it by lines (answer.mjs), so that a test can speak that protocol itself.

import { noise } from "@chainsafe/libp2p-noise";
import { yamux } from "@chainsafe/libp2p-yamux";
import { identify } from "@libp2p/identify";
import { webSockets } from "@libp2p/websockets";
import { all } from "@libp2p/websockets/filters";
import { multiaddr } from "@multiformats/multiaddr";
import { pushable } from "it-pushable";
import { createLibp2p } from "libp2p";

// Each public method but `open` is a command.
export class Transport {
  #libp2p;
  #protocol;
  #outgoing = new Map();

  constructor(libp2p, protocol) {
    this.#libp2p = libp2p;
    this.#protocol = protocol;
  }

  // report: takes an event, {event, ...}
  static async open({ protocol }, report) {
    const libp2p = await createLibp2p({
      transports: [webSockets({ filter: all })],
      connectionMonitor: { enabled: false },
      streamMuxers: [yamux()],
      connectionEncrypters: [noise()],
      // As canvas-js has it.
      services: { identify: identify({ protocolPrefix: "canvas" }) },
    });
    await libp2p.handle(protocol, async ({ stream, connection }) => {
      const peer = connection.remotePeer.toString();
      for await (const chunk of stream.source) report({ event: "data", peer, data: chunk.subarray() });
    });
    return new Transport(libp2p, protocol);
  }

  // Returns the peer's id, once there is a stream to it.
  async dial({ address }) {
    const connection = await this.#libp2p.dial(multiaddr(address));
    const stream = await connection.newStream(this.#protocol);
    const peer = connection.remotePeer.toString();
    const outgoing = pushable();
    this.#outgoing.set(peer, outgoing);
    stream.sink(outgoing);
    return peer;
  }

  async write({ peer, data }) {
    this.#outgoing.get(peer).push(data);
    return null;
  }

  async close() {
    await this.#libp2p.stop();
  }
}
