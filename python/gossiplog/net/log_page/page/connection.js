// The way to the hub: its token, questions to it, and its stream of events, which the page connects to again by itself.
// EventSource would do that, but shows no token: so the stream is read here.

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

// A request was refused for want of a token, or for a wrong one; "" where none was shown.
export class NoToken extends Error {}

const ask = async (path, headers = {}) => {
  // Not what a header cannot have: a browser would complain.
  const shown = /^[\x21-\x7e]+$/.test(token) ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`dashboard/${path}`, { headers: { ...headers, ...shown }, cache: "no-store" });
  if (answer.status === 401) {
    sessionStorage.removeItem(KEPT);
    throw new NoToken(token === "" ? "" : await reasonOf(answer));
  }
  if (!answer.ok) throw new Error(await reasonOf(answer));
  if (token !== "") sessionStorage.setItem(KEPT, token);
  return answer;
};

const reasonOf = async (answer) => {
  try {
    return (await answer.json()).error;
  } catch {
    return `the hub answers with the status ${answer.status}`;
  }
};

export const question = async (path) => (await ask(path)).json();

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Follow the stream until a token is wanted, which is thrown. on: state(data), changes(data), connection(isThere).
export const follow = async (on) => {
  let last = null;
  for (;;) {
    try {
      const answer = await ask("events", last === null ? {} : { "Last-Event-ID": last });
      on.connection(true);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
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
      if (error instanceof NoToken) throw error;
    }
    on.connection(false);
    await pause(RETRY_MILLISECONDS);
  }
};

const fieldOf = (line) => {
  const place = line.indexOf(": ");
  return [line.slice(0, place), line.slice(place + 2)];
};
