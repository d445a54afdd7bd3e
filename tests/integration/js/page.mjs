// A log of canvas-js in the page of a browser, kept in IndexedDB. browser.mjs calls `answer` and offers `report`.

import { GossipLog } from "@canvas-js/gossiplog/idb";
import * as json from "@ipld/dag-json";

import { answer } from "./answer.mjs";
import { collected } from "./collected.mjs";
import { Commands, signerOf } from "./commands.mjs";

const options = new URL(location.href).searchParams;
const log = await GossipLog.open({
  topic: options.get("topic"),
  signer: signerOf(options.get("key")),
  apply: () => {},
});
const { report, flush } = collected((events) => globalThis.report(events));
const commands = new Commands(log, report);
globalThis.answer = async (line) => {
  const reply = await answer(commands, json.parse(line));
  await flush();
  return reply;
};
