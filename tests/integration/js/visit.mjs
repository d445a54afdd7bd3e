// A page of a server that a test runs, for the test to look at and to use, as a person does with mouse and keys.

import { answer } from "./answer.mjs";

const PATIENCE = 240_000; // milliseconds that something may take on a busy machine
const POLLING = 50;

// browser: that has the page. options: url, width, height, dark. report: takes an event "complaint" for each error or
// warning of the page, and for each request to somewhere else. Resolves to a peer, as host.mjs has them.
export const visit = async (browser, { url, width, height, dark }, report) => {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? "dark" : "light",
  });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const complain = (text) => report({ event: "complaint", text });
  page.on("pageerror", (error) => complain(String(error.stack ?? error)));
  page.on("crash", () => complain("the page crashed"));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complain(message.text());
  });
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin) complain(`a request to ${request.url()}`);
  });
  await page.goto(url);

  const commands = {
    // What an expression is.
    async evaluate({ expression }) {
      return (await page.evaluate(expression)) ?? null;
    },
    // What an expression is once it is true. The page itself looks again and again: a look from here takes milliseconds of
    // processor time, in three processes.
    async until({ expression }) {
      // Not Playwright's waitForFunction: it has the page evaluate a text, which the page's policy may forbid.
      const found = await page.evaluate(`(async () => {
        for (const end = Date.now() + ${PATIENCE}; Date.now() < end; await new Promise((go) => setTimeout(go, ${POLLING}))) {
          const found = (${expression});
          if (found) return found;
        }
      })()`);
      if (found === undefined) throw new Error(`not true: ${expression}`);
      return found;
    },
    // Click a place on the page; with a key held where one is given.
    async click_at({ x, y, key }) {
      if (key !== null) await page.keyboard.down(key);
      await page.mouse.click(x, y);
      if (key !== null) await page.keyboard.up(key);
      return null;
    },
    async click({ selector }) {
      await page.locator(selector).click();
      return null;
    },
    async move({ x, y }) {
      await page.mouse.move(x, y);
      return null;
    },
    async press({ key }) {
      await page.keyboard.press(key);
      return null;
    },
    async type({ text }) {
      await page.keyboard.type(text);
      return null;
    },
    // Load the page again, as a person does.
    async reload() {
      await page.reload();
      return null;
    },
    async screenshot({ path, whole }) {
      await page.screenshot({ path, fullPage: whole });
      return null;
    },
  };
  return {
    answer: (request) => answer(commands, request),
    close: () => context.close(),
  };
};
