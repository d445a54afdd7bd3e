// The end of the lines (answer.mjs) that has a standard input and output.

import * as json from "@ipld/dag-json";

export const print = (line) => process.stdout.write(line + "\n");

export const report = (event) => print(json.stringify(event));

// Prints what `answer` makes of each line of the standard input. Returns at its end: then the test is over, or dead.
// Not by node:readline, for which U+2028 ends a line as well.
export const follow = async (answer) => {
  let rest = "";
  process.stdin.setEncoding("utf8");
  for await (const chunk of process.stdin) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) answer(line).then(print);
  }
};
