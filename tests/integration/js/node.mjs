// A log of the original in Node.js, driven by lines (lines.mjs): on disk in --directory, otherwise in memory.
// Besides Commands it can listen: then it is the original's hub, on a loopback port of the system's choice; and join a
// mesh of libp2p peers.

import { createAPI } from "@canvas-js/gossiplog/api";
import { NetworkServer } from "@canvas-js/gossiplog/server";
import { GossipLog } from "@canvas-js/gossiplog/sqlite";
import { Server } from "@canvas-js/gossiplog/sync";
import cors from "cors";
import express from "express";
import { once } from "node:events";
import { createServer } from "node:http";
import { parseArgs } from "node:util";
import { Registry } from "prom-client";
import { WebSocketServer } from "ws";

import { answer } from "./answer.mjs";
import { Commands, signerOf } from "./commands.mjs";
import { follow, report } from "./lines.mjs";

class NodeCommands extends Commands {
  #log;
  #hub = null;

  constructor(log) {
    super(log, report);
    this.#log = log;
  }

  // What the original's own `listen` does, but for the interface, which there is every one, and the port, which it
  // does not tell. Port 0 takes a free one.
  async listen({ port }) {
    if (this.#hub !== null) throw new Error("listening already");
    const server = createServer(express().use(cors()).use("/api", createAPI(this.#log)));
    const network = new NetworkServer(this.#log);
    const sockets = new WebSocketServer({ server, perMessageDeflate: false });
    sockets.on("connection", network.handleConnection);
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
    this.#hub = { server, network, sockets };
    return server.address().port;
  }

  // Joins a mesh. listen and bootstrap: multiaddrs. Returns its own, with its peer id.
  async join({ listen, bootstrap }) {
    // It cannot do without a registry of metrics, and announces a port that is not its own unless told otherwise.
    const libp2p = await this.#log.startLibp2p({ listen, announce: [], bootstrapList: bootstrap, registry: new Registry() });
    for (const event of ["graft", "prune"]) {
      libp2p.services.pubsub.addEventListener(`gossipsub:${event}`, ({ detail: { peerId } }) =>
        report({ event, peer: peerId }),
      );
    }
    libp2p.addEventListener("peer:identify", ({ detail: { peerId, protocols } }) =>
      report({ event: "identify", peer: peerId.toString(), protocols }),
    );
    return libp2p.getMultiaddrs().map(String);
  }

  // Drops every connection, as a hub that dies; it may listen again.
  async stop_listening() {
    const { server, network, sockets } = this.#hub;
    this.#hub = null;
    network.close();
    for (const socket of sockets.clients) socket.terminate();
    server.closeAllConnections();
    server.close();
    await once(server, "close");
    return null;
  }
}

function abortAt(limit) {
  const { handleRequest } = Server.prototype;
  const counts = new WeakMap();
  Server.prototype.handleRequest = function (request) {
    if (request.getValues !== undefined) {
      const count = 1 + (counts.get(this) ?? 0);
      counts.set(this, count);
      if (count === limit) this.abort();
    }
    return handleRequest.call(this, request);
  };
}

const { values: options } = parseArgs({
  options: {
    topic: { type: "string" },
    key: { type: "string" },
    directory: { type: "string" },
    // After how many milliseconds a sync server sends Abort, instead of after 2,000.
    "abort-after": { type: "string" },
    // At which GetValues of a stream a sync server sends Abort: so a fast machine, too, sees a sync end early.
    "abort-at": { type: "string" },
  },
});
// The original leaves some failures of a connection to nobody; Node.js would end the process for them.
process.on("unhandledRejection", (error) => report({ event: "error", error: String(error) }));
if (options["abort-after"] !== undefined) Server.timeout = Number(options["abort-after"]);
if (options["abort-at"] !== undefined) abortAt(Number(options["abort-at"]));

const log = new GossipLog({
  topic: options.topic,
  signer: signerOf(options.key),
  directory: options.directory ?? null,
  apply: () => {},
});
const commands = new NodeCommands(log);
await follow((line) => answer(commands, line));
process.exit();
