// A log of the original in headless Chromium, driven by lines (answer.mjs): bundles page.mjs, serves it on a loopback
// port, opens it in the Chromium at --chromium, with a profile in --profile, and passes the lines on. It serves one
// command itself, "reload": the page loads anew, and with it the log from IndexedDB.

import * as json from "@ipld/dag-json";
import { build } from "esbuild";
import { once } from "node:events";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

import { answer } from "./answer.mjs";
import { follow, print, report } from "./lines.mjs";

const { values: options } = parseArgs({
  options: {
    topic: { type: "string" },
    key: { type: "string" },
    chromium: { type: "string" },
    profile: { type: "string" },
  },
});

const bundle = await build({
  entryPoints: [fileURLToPath(new URL("page.mjs", import.meta.url))],
  bundle: true,
  format: "esm",
  write: false,
});
const files = {
  "/": [
    "text/html",
    '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module" src="page.js"></script>',
  ],
  "/page.js": ["text/javascript", bundle.outputFiles[0].text],
};
const server = createServer(({ url }, response) => {
  const [type, text] = files[new URL(url, "http://localhost").pathname] ?? [];
  response.writeHead(text === undefined ? 404 : 200, { "content-type": `${type}; charset=utf-8` }).end(text);
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const origin = `http://127.0.0.1:${server.address().port}`;

// Its sandbox needs a user other than root, who runs the tests in many containers; it loads this one page.
const context = await chromium.launchPersistentContext(options.profile, {
  executablePath: options.chromium,
  chromiumSandbox: false,
});
const [page] = context.pages();
page.on("pageerror", (error) => report({ event: "error", error: String(error) }));
page.on("console", (message) => process.stderr.write(`${message.text()}\n`));
await page.exposeFunction("report", print);

const load = async () => {
  await page.goto(`${origin}/?${new URLSearchParams({ topic: options.topic, key: options.key })}`);
  await page.waitForFunction(() => globalThis.answer !== undefined);
};
await load();
report({ event: "page", origin });

const own = {
  async reload() {
    await load();
    return null;
  },
};
const page_answers = async (line) => {
  try {
    return await page.evaluate((text) => globalThis.answer(text), line);
  } catch (error) {
    // Not the command's: the page was reloaded meanwhile, or Chromium is gone.
    return json.stringify({ reply: json.parse(line).request, error: String(error) });
  }
};
await follow((line) => (json.parse(line).command in own ? answer(own, line) : page_answers(line)));
await context.close();
process.exit();
