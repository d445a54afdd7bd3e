// A peer: a log of canvas-js in IndexedDB, which does what the coordinator's commands say and reports what happens.

import { GossipLog } from "@canvas-js/gossiplog/idb";
import { ed25519 } from "@canvas-js/signatures";

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const bytes = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));

// Reports go out in order, one after the other.
let sent = Promise.resolve();
const report = (fields) => {
  const body = JSON.stringify(fields);
  sent = sent.then(() => fetch(`${location.pathname}/reports`, { method: "POST", body }));
  return sent;
};

let log;
let connection = null;

const state = () =>
  // Within a write, because database and tree agree only between writes.
  log.tree.write(async (transaction) => {
    const [clock, heads] = await log.getClock();
    const messages = await log.db.count("$messages");
    return { report: "state", messages, root: hex(transaction.getRoot().hash), clock, heads };
  });

// At most one look at the log at a time, and one more after whatever came meanwhile.
let looking = null;
let again = false;
const changed = () => {
  again = true;
  looking ??= (async () => {
    while (again) {
      again = false;
      await report(await state());
    }
    looking = null;
  })();
};

const commands = {
  async open({ topic, key }) {
    const signer = ed25519.create({ type: "ed25519", privateKey: bytes(key) });
    log = await GossipLog.open({ topic, signer, apply: () => {} });
    log.addEventListener("message", ({ detail: { id, source, message } }) => {
      if (source !== undefined) report({ report: "message", id, by: source.type, sent: message.payload?.sent ?? null });
      changed();
    });
    log.addEventListener("sync", ({ detail: { messageCount } }) => report({ report: "sync", messages: messageCount }));
    log.addEventListener("connect", () => report({ report: "connect" }));
    log.addEventListener("disconnect", () => report({ report: "disconnect" }));
    await report(await state());
  },

  async connect({ url }) {
    connection = new AbortController();
    await log.connect(url, { signal: connection.signal });
  },

  async disconnect() {
    connection?.abort();
    connection = null;
  },

  async append({ payloads }) {
    for (const payload of payloads) {
      const { id } = await log.append(payload);
      report({ report: "published", id });
    }
  },
};

new EventSource(`${location.pathname}/commands`).onmessage = async ({ data }) => {
  const { id, command, ...fields } = JSON.parse(data);
  try {
    await commands[command](fields);
    report({ report: "done", id });
  } catch (error) {
    report({ report: "failed", id, error: String(error) });
  }
};
