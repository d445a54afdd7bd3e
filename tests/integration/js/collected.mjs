// Events in batches: each call from a page to the process that drives it costs milliseconds of processor time.

const INTERVAL = 200; // milliseconds between batches: an event that comes alone does not wait

// send: takes a list of events, and resolves when they have been taken. Returns report, which takes an event, and flush,
// which resolves when all events that were reported before have been taken.
export const collected = (send) => {
  let events = [];
  let sent = Promise.resolve();
  let timer = null;
  let next = 0;
  const flush = () => {
    clearTimeout(timer);
    timer = null;
    if (events.length > 0) {
      next = performance.now() + INTERVAL;
      sent = send(events);
      events = [];
    }
    return sent;
  };
  const report = (event) => {
    events.push(event);
    timer ??= setTimeout(flush, Math.max(0, next - performance.now()));
  };
  return { report, flush };
};
