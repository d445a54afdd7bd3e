// Joins the parts: the stream of the hub, the part of the log that is looked at, and what shows them. The newest
// messages come by the stream; older ones are asked for, and stay as they are until one walks on.

import { onTheme } from "./colours.js";
import { follow, NoAnswer, NoToken, question, useToken } from "./connection.js";
import { Graph } from "./graph.js";
import {
  clearLog,
  showAuthors,
  showCounts,
  showDetail,
  showLog,
  showPeers,
  showSyncs,
  showTroubles,
} from "./panels.js";
import { connectionText, put } from "./texts.js";

const element = (id) => document.getElementById(id);
const byId = (first, second) => (first.id < second.id ? 1 : -1);

const state = { log: null, latest: new Map(), hasOlder: false, sections: {} };
let older = null; // the window that is shown in place of the newest messages: messages, older, newer
let detail = null; // of the chosen message
let asked = 0; // questions about messages, of which the last counts

const graph = new Graph(element("graph"), element("rows"), { choose: (id) => choose(id) });

const windowShown = () =>
  older ?? { messages: [...state.latest.values()].sort(byId), older: state.hasOlder, newer: false };

const showMessages = () => {
  const shown = windowShown();
  graph.show(shown.messages, state.log?.heads ?? []);
  showAuthors(shown.messages);
  element("newer").disabled = !shown.newer;
  element("older").disabled = !shown.older;
  element("newest").disabled = older === null;
  element("empty").hidden = shown.messages.length > 0;
  const count = shown.messages.length;
  const clocks = count === 0 ? "" : `, clocks ${shown.messages.at(-1).clock} to ${shown.messages[0].clock}`;
  put(element("window"), `${older === null ? "the newest" : "older"} ${count}${clocks}`);
};

// Of a question that failed, until another one is answered. What the hub says of its own state stands beside it.
const notice = (text) => put(element("notice"), text);

// Choose a message, wherever it is in the log.
const choose = async (id) => {
  const number = ++asked;
  try {
    if (!graph.has(id)) {
      const found = await question(`messages?around=${encodeURIComponent(id)}`);
      if (number !== asked) return;
      older = found;
      showMessages();
    }
    graph.choose(id);
    const found = await question(`messages/${encodeURIComponent(id)}`);
    if (number !== asked) return;
    detail = found;
    showDetail(detail, choose);
    notice("");
  } catch (error) {
    failed(error);
  }
};

const walk = async (name, id) => {
  const number = ++asked;
  try {
    const found = await question(`messages?${name}=${encodeURIComponent(id)}`);
    if (number !== asked) return;
    // A row that goes takes the focus with it.
    const isInRows = element("rows").contains(document.activeElement);
    // The newest come by the stream.
    older = found.newer ? found : null;
    showMessages();
    notice("");
    element("scroll").scrollTop = name === "before" ? 0 : element("scroll").scrollHeight;
    const next = name === "before" ? windowShown().messages[0] : windowShown().messages.at(-1);
    if (next !== undefined && isInRows) choose(next.id);
  } catch (error) {
    failed(error);
  }
};

const goOlder = () => {
  const { messages, older: isMore } = windowShown();
  if (isMore) walk("before", messages.at(-1).id);
};
const goNewer = () => {
  const { messages, newer } = windowShown();
  if (newer) walk("after", messages[0].id);
};
const goNewest = () => {
  asked++;
  const isInRows = element("rows").contains(document.activeElement);
  older = null;
  showMessages();
  notice("");
  element("scroll").scrollTop = 0;
  const next = windowShown().messages[0];
  if (next !== undefined && isInRows) choose(next.id);
};

// Show why a question has no answer. All other errors are defects, which the browser's console is to name.
const failed = (error) => {
  if (error instanceof NoToken) signIn(error.message);
  else if (error instanceof NoAnswer) notice(error.message);
  else throw error;
};

const take = (data) => {
  Object.assign(state.sections, data);
  if (data.latest) {
    for (const message of data.latest.added) state.latest.set(message.id, message);
    for (const id of state.latest.keys()) if (id < data.latest.oldest) state.latest.delete(id);
    state.hasOlder = data.latest.older;
  }
  if (data.log) showLog((state.log = data.log), choose);
  if (data.hub) {
    put(element("title"), data.hub.topic);
    document.title = `${data.hub.topic} – gossiplog`;
  }
  if (data.peers) showPeers(data.peers);
  if (data.syncs) showSyncs(data.syncs);
  if (data.counts) showCounts(data.counts);
  if (data.troubles || data.counts)
    showTroubles(state.sections.troubles, element("counts").childElementCount > 0);
  if (data.fault !== undefined || data.hub)
    put(element("trouble"), state.sections.fault || state.sections.hub?.unready || "");
  if (data.latest || data.log) {
    if (older === null) showMessages();
    // A child may have come.
    if (detail !== null && data.latest) refreshDetail();
  }
};

const refreshDetail = async () => {
  const id = detail.id;
  try {
    const found = await question(`messages/${encodeURIComponent(id)}`);
    if (detail?.id === id && JSON.stringify(found) !== JSON.stringify(detail)) showDetail((detail = found), choose);
  } catch (error) {
    failed(error);
  }
};

const signIn = (reason) => {
  document.querySelector("main").hidden = true;
  element("sign-in").hidden = false;
  clearLog();
  for (const name of ["connection", "trouble", "notice"]) put(element(name), "");
  put(element("sign-in-reason"), reason);
  element("token").focus();
};

let isFollowing = false;
const begin = async () => {
  if (isFollowing) return;
  isFollowing = true;
  try {
    await follow({
      connection: (isThere, reason) => {
        put(element("connection"), connectionText(isThere, reason));
        if (isThere) {
          element("sign-in").hidden = true;
          document.querySelector("main").hidden = false;
        }
      },
      state: (data) => {
        state.latest.clear();
        take(data);
      },
      changes: take,
    });
  } catch (error) {
    if (!(error instanceof NoAnswer))
      put(element("connection"), "this page has a defect, which the browser's console names: load it again");
    failed(error);
  } finally {
    isFollowing = false;
  }
};

element("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(element("token").value);
  element("token").value = "";
  begin();
});
element("older").addEventListener("click", goOlder);
element("newer").addEventListener("click", goNewer);
element("newest").addEventListener("click", goNewest);
element("stage").addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "PageDown") goOlder();
  else if (event.key === "PageUp") goNewer();
  else if (event.key === "Home") goNewest();
  else if (event.key.startsWith("Arrow")) {
    // Where there is none, what is chosen comes into sight again.
    const id = graph.beside(event.key) ?? graph.chosen;
    if (id !== null) choose(id);
  } else return;
  event.preventDefault();
});
onTheme(() => showMessages());
matchMedia("(max-width: 820px)").addEventListener("change", () => showMessages());

begin();

// For tests, and for those who look: what the page knows.
globalThis.dashboard = {
  state,
  graph,
  get window() {
    return windowShown();
  },
  get detail() {
    return detail;
  },
};
