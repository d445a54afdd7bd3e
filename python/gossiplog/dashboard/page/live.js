// Events of a network that runs: the browser connects again by itself, and goes on where it was.

const RETRY_MILLISECONDS = 1000;

// on: state(), when all of it is new; changes(events); connection(isThere).
export const follow = (state, on) => {
  const open = () => {
    const source = new EventSource("events");
    source.addEventListener("open", () => on.connection(true));
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
    source.addEventListener("error", () => {
      on.connection(false);
      // An answer that is no stream, as while too many pages are open, ends it for good.
      if (source.readyState === EventSource.CLOSED) setTimeout(open, RETRY_MILLISECONDS);
    });
  };
  open();
};
