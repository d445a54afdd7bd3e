// Requests and replies, one a line in dag-json, so that they can hold any payload:
//   {"request": 1, "handle": 1, "command": "append", ...}  ->  {"reply": 1, "result": ...} or {"reply": 1, "error": "..."}
// and events in between: {"event": "message", "handle": 1, ...}. A handle is a number that stands for a peer (host.mjs).
// Requests are served at once, side by side.

import * as json from "@ipld/dag-json";

// The reply to a request, as a line.
export const answer = async (commands, { request, command, ...fields }) => {
  try {
    return json.stringify({ reply: request, result: await commands[command](fields) });
  } catch (error) {
    return refusal(request, error);
  }
};

// The line that refuses a request.
export const refusal = (request, error) => json.stringify({ reply: request, error: error?.stack ?? String(error) });
