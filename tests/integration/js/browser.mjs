// Logs of canvas-js in headless Chromium, driven by lines (host.mjs): bundles page.mjs, serves it on a loopback port, and
// opens it in the Chromium at --chromium, each log in a page with storage and an origin of its own. Two commands are served
// here, "origin" and "reload": the page loads anew, and with it the log from IndexedDB; the page serves the others. The
// kind "visit" is a page of another server (visit.mjs).

import { build } from "esbuild";
import { once } from "node:events";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

import { answer } from "./answer.mjs";
import { host } from "./host.mjs";
import { visit } from "./visit.mjs";

const { values: options } = parseArgs({ options: { chromium: { type: "string" } } });

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

// Its sandbox needs a user other than root, who runs the tests in many containers; it loads this one page.
const browser = await chromium.launch({ executablePath: options.chromium, chromiumSandbox: false });
const end = () => {
  process.stderr.write("Chromium has ended\n");
  process.exit(1);
};
browser.once("disconnected", end);

let pages = 0;

await host(async ({ kind, topic, key, ...options }, report) => {
  if (kind === "visit") return visit(browser, options, report);
  // Browsers take every name under localhost for loopback.
  const origin = `http://page-${++pages}.localhost:${server.address().port}`;
  const context = await browser.newContext();
  const page = await context.newPage();
  page.on("pageerror", (error) => report({ event: "error", error: String(error) }));
  page.on("crash", () => process.stderr.write(`the page at ${origin} crashed\n`));
  page.on("console", (message) => process.stderr.write(`${message.text()}\n`));
  await page.exposeFunction("report", (events) => events.forEach(report));

  const load = async () => {
    await page.goto(`${origin}/?${new URLSearchParams({ topic, key })}`);
    await page.waitForFunction(() => globalThis.answer !== undefined);
  };
  await load();

  const own = {
    async origin() {
      return origin;
    },
    async reload() {
      await load();
      return null;
    },
  };
  return {
    answer: (request, line) =>
      request.command in own ? answer(own, request) : page.evaluate((text) => globalThis.answer(text), line),
    close: () => context.close(),
  };
});
browser.off("disconnected", end);
await browser.close();
process.exit();
