// Requests and replies, one a line in dag-json, so that they can hold any payload:
//   {"request": 1, "command": "append", ...}  ->  {"reply": 1, "result": ...} or {"reply": 1, "error": "..."}
// and events in between: {"event": "message", ...}. Requests are served at once, side by side.

import * as json from "@ipld/dag-json";

// The reply to the request in a line, as a line.
export const answer = async (commands, line) => {
  const { request, command, ...fields } = json.parse(line);
  try {
    return json.stringify({ reply: request, result: await commands[command](fields) });
  } catch (error) {
    return json.stringify({ reply: request, error: error?.stack ?? String(error) });
  }
};
