// Events of a network that runs: the browser connects again by itself, and goes on where it was.

import { reasonOf } from "./texts.js";

const RETRY_MILLISECONDS = 1000;

// on: state(), when all of it is new; changes(events); connection(isThere, reason).
export const follow = (state, on) => {
  const open = () => {
    const source = new EventSource("events");
    source.addEventListener("open", () => on.connection(true, ""));
    source.addEventListener("state", ({ data }) => {
      state.load(JSON.parse(data));
      on.state();
    });
    source.addEventListener("changes", ({ data }) => {
      const { figures, events } = JSON.parse(data);
      const fresh = events.filter((event) => state.apply(event, false));
      state.correct(figures);
      on.changes(fresh);
    });
    source.addEventListener("error", async () => {
      // An answer that is no stream, as while too many pages are open, ends it for good.
      const isClosed = source.readyState === EventSource.CLOSED;
      on.connection(false, isClosed ? await refusal() : "");
      if (isClosed) setTimeout(open, RETRY_MILLISECONDS);
    });
  };
  open();
};

// Why there is no stream, which EventSource does not say; "" where there is one now, or no answer.
const refusal = async () => {
  const stop = new AbortController();
  try {
    const answer = await fetch("events", { cache: "no-store", signal: stop.signal });
    return answer.ok ? "" : await reasonOf(answer);
  } catch {
    return "";
  } finally {
    stop.abort();
  }
};
