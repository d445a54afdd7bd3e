// What is said of the peers and their logs together. Nothing here knows the page.

const SILENT = 10; // seconds without any event: those who run report each second

const hasLog = (peer) => peer.kind !== "bootstrap";

// How many peers hold a log, and how many of them run.
export const countPeers = (state) => {
  const logs = [...state.peers.values()].filter(hasLog);
  return { all: logs.length, running: logs.filter((peer) => peer.running).length };
};

// A verdict over the logs: its words, and its class, which is empty while it is no verdict yet.
// silence: seconds for which a network that runs has not reported anything.
export const verdictOf = (state, silence = 0) => {
  const logs = [...state.peers].filter(([, peer]) => hasLog(peer));
  const running = logs.filter(([, peer]) => peer.running);
  const reported = running.filter(([, peer]) => peer.root !== "");
  const isConnected = ([name]) => [...state.others.get(name)].some((other) => hasLog(state.peers.get(other)));
  const connected = running.length > 1 ? running.filter(isConnected) : running;
  const notes = [];
  if (reported.length < running.length) notes.push(`${reported.length} of ${running.length} have reported`);
  if (connected.length < running.length) notes.push(`${connected.length} of ${running.length} connected`);
  const tens = Math.floor(silence / SILENT) * SILENT;
  if (tens > 0) notes.push(`no report for ${tens} s`);
  const say = (kind, ...words) => ({ kind, words: [...words, ...notes].join(" · ") });

  if (state.roots.size > 1) return say("different", `${state.roots.size} different logs`);
  if (running.length === 0) return logs.length === 0 ? say("") : say("", "no peer runs");
  // Logs in which nothing is yet are equal before anybody has spoken with another.
  const areEmpty = reported.every(([, peer]) => peer.messages === 0);
  if (reported.length < running.length || (areEmpty && connected.length < running.length)) return say("");
  const apart = logs.filter(([, peer]) => !peer.running && peer.root !== "" && !state.roots.has(peer.root)).length;
  const differ = apart === 1 ? "1 stopped differs" : `${apart} stopped differ`;
  const words = apart === 0 ? "all logs are equal" : `all running logs are equal (${differ})`;
  return say(tens > 0 ? "" : "equal", words);
};
