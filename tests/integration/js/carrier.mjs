// A libp2p peer of the original's packages that runs no protocol but what libp2p needs: it carries the bytes of one
// protocol between other peers and whoever drives it by lines (lines.mjs), so that a test can speak that protocol itself.

import { noise } from "@chainsafe/libp2p-noise";
import { yamux } from "@chainsafe/libp2p-yamux";
import { identify } from "@libp2p/identify";
import { webSockets } from "@libp2p/websockets";
import { all } from "@libp2p/websockets/filters";
import { multiaddr } from "@multiformats/multiaddr";
import { pushable } from "it-pushable";
import { createLibp2p } from "libp2p";
import { parseArgs } from "node:util";

import { answer } from "./answer.mjs";
import { follow, report } from "./lines.mjs";

const { values: options } = parseArgs({ options: { protocol: { type: "string" } } });

const libp2p = await createLibp2p({
  transports: [webSockets({ filter: all })],
  connectionMonitor: { enabled: false },
  streamMuxers: [yamux()],
  connectionEncrypters: [noise()],
  // As the original's peers have it.
  services: { identify: identify({ protocolPrefix: "canvas" }) },
});

await libp2p.handle(options.protocol, async ({ stream, connection }) => {
  const peer = connection.remotePeer.toString();
  for await (const chunk of stream.source) report({ event: "data", peer, data: chunk.subarray() });
});

class Carrier {
  #outgoing = new Map();

  // Returns the peer's id, once there is a stream to it.
  async dial({ address }) {
    const connection = await libp2p.dial(multiaddr(address));
    const stream = await connection.newStream(options.protocol);
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
}

const carrier = new Carrier();
await follow((line) => answer(carrier, line));
process.exit();
