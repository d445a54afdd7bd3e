// What a test can ask of a log of canvas-js, in Node.js and in a browser alike. Each public method of Commands is a
// command: it takes the request's fields and returns what the reply carries, both of the IPLD data model.

import { ed25519 } from "@canvas-js/signatures";
import { equals, fromString } from "uint8arrays";

// privateKey: 64 hexadecimal digits
export const signerOf = (privateKey) => ed25519.create({ type: "ed25519", privateKey: fromString(privateKey, "hex") });

export class Commands {
  #log;
  #connections = new Map();

  // report: takes an event, {event, ...}
  constructor(log, report) {
    this.#log = log;
    log.addEventListener("message", ({ detail: { id, source } }) =>
      report({ event: "message", id, source: source?.type ?? null }),
    );
    log.addEventListener("sync", ({ detail: { messageCount, duration } }) =>
      report({ event: "sync", messages: messageCount, milliseconds: duration }),
    );
    log.addEventListener("connect", ({ detail: { peer } }) => report({ event: "connect", peer }));
    log.addEventListener("disconnect", ({ detail: { peer } }) => {
      this.#connections.delete(peer);
      report({ event: "disconnect", peer });
    });
  }

  // parents: ids, or null for all heads
  async append({ payload, codec, parents }) {
    const chosen = this.#signer(codec);
    if (parents === null) return (await this.#log.append(payload, { signer: chosen })).id;
    const clocks = await Promise.all(parents.map(async (id) => (await this.#log.get(id)).message.clock));
    const message = { topic: this.#log.topic, clock: Math.max(0, ...clocks) + 1, parents, payload };
    return (await this.#log.insert(this.#log.encode(chosen.sign(message), message))).id;
  }

  // A chain of count messages behind the heads, {"number": start}, {"number": start + 1} and so on.
  async append_numbers({ start, count }) {
    for (let number = start; number < start + count; number++) await this.#log.append({ number });
    return null;
  }

  // Stored values, parents first. Returns [index, reason] of those that canvas-js refuses.
  async insert({ values }) {
    const refused = [];
    for (const [index, value] of values.entries()) {
      try {
        await this.#log.insert(this.#log.decode(value));
      } catch (error) {
        refused.push([index, String(error)]);
      }
    }
    return refused;
  }

  // In the order of the ids. canvas-js keeps no bytes but what it decodes, and encodes that again.
  async values() {
    const values = [];
    for await (const { value } of this.#log.iterate()) values.push(value);
    return values;
  }

  async ids() {
    return (await this.#log.db.query("$messages", { select: { id: true }, orderBy: { id: "asc" } })).map(
      ({ id }) => id,
    );
  }

  async state() {
    // Within a write, because database and tree agree only between writes.
    return await this.#log.tree.write(async (transaction) => {
      const { level, hash } = transaction.getRoot();
      const [clock, heads] = await this.#log.getClock();
      return { root: { level, hash }, clock, heads, count: await this.#log.db.count("$messages") };
    });
  }

  // The state, once it has at least so many messages, or this root hash; the other one is null.
  async wait({ count, hash }) {
    for (;;) {
      const changed = this.#next("commit");
      const state = await this.state();
      if (hash === null ? state.count >= count : equals(state.root.hash, hash)) return state;
      await changed;
    }
  }

  async connect({ url }) {
    if (this.#connections.has(url)) throw new Error(`connected to ${url} already`);
    const controller = new AbortController();
    await this.#log.connect(url, { signal: controller.signal });
    this.#connections.set(url, controller);
    return null;
  }

  async disconnect({ url }) {
    const controller = this.#connections.get(url);
    if (controller === undefined) throw new Error(`not connected to ${url}`);
    const gone = this.#next("disconnect", ({ peer }) => peer === url);
    controller.abort();
    await gone;
    return null;
  }

  async close() {
    await this.#log.close();
    return null;
  }

  #signer(codec) {
    const { signer } = this.#log;
    return { scheme: signer.scheme, publicKey: signer.publicKey, sign: (message) => signer.sign(message, { codec }) };
  }

  #next(name, wanted = () => true) {
    return new Promise((resolve) => {
      const listen = ({ detail }) => {
        if (!wanted(detail)) return;
        this.#log.removeEventListener(name, listen);
        resolve();
      };
      this.#log.addEventListener(name, listen);
    });
  }
}
