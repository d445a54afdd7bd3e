// Peers in Node.js, driven by lines (host.mjs). A log of canvas-js is on disk in a directory, otherwise in memory. Besides
// Commands it can listen: then it is canvas-js's hub, on a loopback port of the system's choice; and join a mesh of libp2p
// peers. A transport (transport.mjs) and a peer of floodsub (floodsub.mjs) have no log.

import { createAPI } from "@canvas-js/gossiplog/api";
import { NetworkServer } from "@canvas-js/gossiplog/server";
import { GossipLog } from "@canvas-js/gossiplog/sqlite";
import { Server } from "@canvas-js/gossiplog/sync";
import cors from "cors";
import express from "express";
import { once } from "node:events";
import { createServer } from "node:http";
import { Registry } from "prom-client";
import { WebSocketServer } from "ws";

import { answer } from "./answer.mjs";
import { Transport } from "./transport.mjs";
import { Commands, signerOf } from "./commands.mjs";
import { Floodsub } from "./floodsub.mjs";
import { host } from "./host.mjs";
import { insertAll, judgeAll } from "./judge.mjs";
import { report } from "./lines.mjs";

class NodeCommands extends Commands {
  #log;
  #report;
  #hub = null;
  #libp2p = null;

  constructor(log, report) {
    super(log, report);
    this.#log = log;
    this.#report = report;
  }

  // What canvas-js's own `listen` does, but for the interface, which there is every one, and the port, which it does not
  // tell. Port 0 takes a free one.
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
    this.#libp2p = libp2p;
    for (const event of ["graft", "prune"]) {
      libp2p.services.pubsub.addEventListener(`gossipsub:${event}`, ({ detail: { peerId } }) =>
        this.#report({ event, peer: peerId }),
      );
    }
    libp2p.addEventListener("peer:identify", ({ detail: { peerId, protocols } }) =>
      this.#report({ event: "identify", peer: peerId.toString(), protocols }),
    );
    return libp2p.getMultiaddrs().map(String);
  }

  // What each stored value would be verified over; see judge.mjs.
  async judge({ values }) {
    return judgeAll(this.#log, values);
  }

  // Inserts each stored value as if the log had no heads; see judge.mjs.
  async insert_apart({ values }) {
    return await insertAll(this.#log, values);
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

  async close() {
    if (this.#hub !== null) await this.stop_listening();
    await this.#libp2p?.stop();
    return await super.close();
  }
}

// How many GetValues of a sync are left before its server sends Abort, by the snapshot that it serves.
const left = new WeakMap();
const { handleRequest } = Server.prototype;
Server.prototype.handleRequest = function (request) {
  if (request.getValues !== undefined && left.has(this.txn)) {
    left.set(this.txn, left.get(this.txn) - 1);
    if (left.get(this.txn) === 0) this.abort();
  }
  return handleRequest.call(this, request);
};

const { timeout } = Server;

// Has a log's sync servers send Abort after so many milliseconds, or at that GetValues of a stream, so that a fast
// machine, too, sees a sync end early. Null leaves what canvas-js does.
const abortSyncs = (log, after, at) => {
  const serve = log.serve.bind(log);
  log.serve = (callback) =>
    serve((snapshot) => {
      if (at !== null) left.set(snapshot, at);
      // All logs have it in common, but a server reads it only as it begins, in `callback`.
      Server.timeout = after ?? timeout;
      return callback(snapshot);
    });
};

const openers = {
  async log({ topic, key, directory = null, abort_after = null, abort_at = null }, report) {
    const log = new GossipLog({ topic, signer: signerOf(key), directory, apply: () => {} });
    abortSyncs(log, abort_after, abort_at);
    return new NodeCommands(log, report);
  },
  transport: Transport.open,
  floodsub: Floodsub.open,
};

// canvas-js leaves some failures of a connection to nobody; Node.js would end the process for them.
process.on("unhandledRejection", (error) => report({ event: "error", error: String(error) }));

await host(async ({ kind, ...options }, report) => {
  const commands = await openers[kind](options, report);
  return { answer: (request) => answer(commands, request), close: () => commands.close() };
});
process.exit();
