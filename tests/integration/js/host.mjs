// One process for any number of peers, driven by lines (answer.mjs). "open" makes the peer of a new handle, "close" ends
// it; every other command is the peer's own.

import * as json from "@ipld/dag-json";

import { answer, refusal } from "./answer.mjs";
import { follow, report } from "./lines.mjs";

// openPeer: takes options and a function for the peer's events, and resolves to the peer: answer(request, line), which
// resolves to the line of the reply, and close(). Returns at the end of the standard input.
export const host = async (openPeer) => {
  const peers = new Map();
  const own = {
    async open({ handle, options }) {
      if (peers.has(handle)) throw new Error(`handle ${handle} is taken`);
      const opening = openPeer(options, (event) => report({ ...event, handle }));
      // Already now: what is asked of the peer meanwhile waits for it.
      peers.set(handle, opening);
      await opening;
      return null;
    },
    async close({ handle }) {
      const peer = await peers.get(handle);
      peers.delete(handle);
      await peer.close();
      return null;
    },
  };
  await follow(async (line) => {
    const request = json.parse(line);
    if (request.command in own) return await answer(own, request);
    try {
      return await (await peers.get(request.handle)).answer(request, line);
    } catch (error) {
      return refusal(request.request, error);
    }
  });
};
