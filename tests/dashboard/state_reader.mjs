// The fold of the page, for Python: each line is {"snapshot"?, "events"?, "batches"?}; the answer is the state after them.
// The argument is the path of page/state.js, which is a module in a page, and for Node.js only if it is told so.

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

const source = await readFile(process.argv[2]);
const { NetworkState } = await import(`data:text/javascript;base64,${source.toString("base64")}`);

for await (const line of createInterface({ input: process.stdin })) {
  const { snapshot, events = [], batches = [] } = JSON.parse(line);
  const state = new NetworkState();
  if (snapshot) state.load(snapshot);
  for (const event of events) state.apply(event);
  for (const { figures, events } of batches) {
    for (const event of events) state.apply(event, false);
    state.correct(figures);
  }
  process.stdout.write(JSON.stringify({ ...state.snapshot(), distinct: state.roots.size }) + "\n");
}
