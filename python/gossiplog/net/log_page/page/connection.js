// The way to the hub: its token, questions to it, and its stream of events, which the page connects to again by itself.
// EventSource would do that, but shows no token: so the stream is read here.

import { reasonOf } from "./texts.js";

const RETRY_MILLISECONDS = 500;
const KEPT = "gossiplog.token";

// The token, for as long as this tab is open. One that came with the address is taken out of it.
const takeToken = () => {
  const address = new URL(location.href);
  const fragment = new URLSearchParams(address.hash.slice(1));
  const given = address.searchParams.get("token") ?? fragment.get("token");
  if (given !== null) {
    address.searchParams.delete("token");
    fragment.delete("token");
    address.hash = fragment.toString();
    history.replaceState(null, "", address.href.replace(/#$/, ""));
    return given;
  }
  return sessionStorage.getItem(KEPT) ?? "";
};

let token = takeToken();

export const useToken = (text) => {
  token = text.trim();
};

// The hub refused what was asked, or did not answer; the message is the reason. Errors of other classes are defects of
// this page.
export class NoAnswer extends Error {}

// A request was refused for want of a token, or for a wrong one; "" where none was shown.
export class NoToken extends NoAnswer {}

const orNoAnswer = (promise) =>
  promise.catch(() => {
    throw new NoAnswer("the hub does not answer");
  });

const ask = async (path, headers = {}) => {
  // Not what a header cannot have: a browser would complain.
  const shown = /^[\x21-\x7e]+$/.test(token) ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers: { ...headers, ...shown }, cache: "no-store" };
  const answer = await orNoAnswer(fetch(`dashboard/${path}`, options));
  if (answer.status === 401) {
    sessionStorage.removeItem(KEPT);
    throw new NoToken(token === "" ? "" : await reasonOf(answer));
  }
  if (!answer.ok) throw new NoAnswer(await reasonOf(answer));
  if (token !== "") sessionStorage.setItem(KEPT, token);
  return answer;
};

export const question = async (path) => orNoAnswer((await ask(path)).json());

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Follow the stream until a token is wanted, or `on` has a defect: either is thrown. on: state(data), changes(data),
// connection(isThere, reason).
export const follow = async (on) => {
  let last = null;
  for (;;) {
    let reader = null;
    let reason = "";
    try {
      const answer = await ask("events", last === null ? {} : { "Last-Event-ID": last });
      on.connection(true, "");
      reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await orNoAnswer(reader.read());
        if (done) break;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
          const fields = Object.fromEntries(block.split("\n").map(fieldOf));
          if (fields.data === undefined) continue;
          on[fields.event](JSON.parse(fields.data));
          last = fields.id;
        }
      }
    } catch (error) {
      if (error instanceof NoToken || !(error instanceof NoAnswer)) throw error;
      reason = error.message;
    } finally {
      // Of a page that reads no more the hub would wait for a while.
      reader?.cancel().catch(() => {});
    }
    on.connection(false, reason);
    await pause(RETRY_MILLISECONDS);
  }
};

const fieldOf = (line) => {
  const place = line.indexOf(": ");
  return [line.slice(0, place), line.slice(place + 2)];
};
