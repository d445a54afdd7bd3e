// What stands beside the graph: heads, authors, peers, syncs, and what was refused or failed. All of it is text.

import { colourOfAuthor } from "./authors.js";
import { shortId } from "./graph.js";
import { bytesText, put } from "./texts.js";

const element = (id) => document.getElementById(id);

const timeOf = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

const rowOf = (texts) => {
  const row = document.createElement("tr");
  for (const text of texts) {
    const cell = document.createElement("td");
    cell.textContent = text;
    cell.title = text;
    row.append(cell);
  }
  return row;
};

export const linkTo = (id, open) => {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "link code";
  button.textContent = shortId(id);
  button.title = id;
  button.dataset.id = id;
  button.addEventListener("click", () => open(id));
  return button;
};

// A list is made anew only if it says something else, so that what has the focus keeps it.
const shown = new Map();
const changed = (name, value) => {
  const text = JSON.stringify(value);
  if (shown.get(name) === text) return false;
  shown.set(name, text);
  return true;
};

export const showLog = ({ messages, heads, head_count, clock, root, level }, open) => {
  put(element("figure-messages"), messages.toLocaleString("en"));
  put(element("figure-heads"), head_count.toLocaleString("en"));
  put(element("figure-heads-name"), head_count === 1 ? "head" : "heads");
  put(element("figure-clock"), String(clock));
  put(element("figure-root"), root.slice(-8));
  element("figure-root").title = `${root}, level ${level}`;
  if (!changed("heads", [heads, head_count])) return;
  const items = heads.map((id) => {
    const item = document.createElement("li");
    item.append(linkTo(id, open));
    return item;
  });
  if (head_count > heads.length) {
    const item = document.createElement("li");
    item.textContent = `and ${head_count - heads.length} more`;
    items.push(item);
  }
  element("heads").replaceChildren(...items);
};

// What was known of the log is not shown to who has no token any more.
export const clearLog = () => {
  for (const name of ["messages", "heads", "clock", "root"]) put(element(`figure-${name}`), "–");
  element("figure-root").title = "";
};

export const showAuthors = (messages) => {
  const counts = new Map();
  for (const { author } of messages) counts.set(author, (counts.get(author) ?? 0) + 1);
  const authors = [...counts].sort(([, first], [, second]) => second - first);
  element("authors").replaceChildren(
    ...authors.map(([author, count]) => {
      const item = document.createElement("li");
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = colourOfAuthor(author);
      const name = document.createElement("span");
      name.className = "code";
      name.textContent = author;
      name.title = author;
      const number = document.createElement("output");
      number.textContent = String(count);
      item.append(swatch, name, number);
      return item;
    }),
  );
};

export const showPeers = ({ shown: peers, count }) => {
  put(element("peer-count"), count === 0 ? "" : `· ${count}`);
  if (!changed("peers", peers)) return;
  const standing = ({ replicates, in_mesh, rtt }) =>
    [
      replicates ? "in step" : "connected",
      ...(in_mesh ? ["mesh"] : []),
      ...(rtt ? [`${Math.round(rtt * 1000)} ms`] : []),
    ].join(", ");
  const rows = peers.map((peer) => rowOf([peer.peer, peer.kind, standing(peer)]));
  element("peers").replaceChildren(...(rows.length > 0 ? rows : [rowOf(["none", "", ""])]));
};

export const showSyncs = (syncs) => {
  const rows = syncs.map(({ at, peer, direction, messages, state, error }) => {
    const told = direction === "out" ? "served" : error ? `${state}: ${error}` : state;
    return rowOf([timeOf(at), peer, messages.toLocaleString("en"), told]);
  });
  element("syncs").replaceChildren(...(rows.length > 0 ? rows : [rowOf(["–", "none yet", "", ""])]));
};

const KINDS = {
  message: "message refused",
  reported: "refused by a peer",
  peer: "peer dropped",
  sync: "sync",
  failure: "failure",
  defect: "defect",
};

export const showTroubles = (troubles, isCounted) => {
  const rows = troubles.map(({ at, kind, peer, what, reason }) =>
    rowOf([timeOf(at), [KINDS[kind], peer, what].filter((text) => text).join(" · "), reason]),
  );
  const none = rowOf(["–", isCounted ? "nothing else" : "none yet", ""]);
  element("troubles").replaceChildren(...(rows.length > 0 ? rows : [none]));
};

const COUNTS = {
  refused_requests: "requests refused",
  refused_connections: "connections refused",
  dropped_messages: "messages not taken",
  dropped_peers: "peers dropped",
  reported_refusals: "refused by peers",
  errors: "errors",
  defects: "defects",
};

export const showCounts = (counts) => {
  const items = Object.entries(COUNTS).flatMap(([name, title]) => {
    const count = counts[name];
    const isOne = typeof count === "number";
    const parts = isOne ? [count].filter((each) => each > 0) : Object.entries(count).map((each) => each.join(" "));
    if (parts.length === 0) return [];
    const item = document.createElement("li");
    item.textContent = `${title}: ${parts.join(", ")}`;
    return [item];
  });
  element("counts").replaceChildren(...items);
  const names = ["refused_requests", "refused_connections", "dropped_messages", "errors"];
  element("counted").hidden = names.every((name) => Object.keys(counts[name]).length === 0);
};

// The chosen message; null for none.
export const showDetail = (message, open) => {
  element("detail-none").hidden = message !== null;
  const rows = [];
  if (message !== null) {
    const { id, clock, author, codec, size, parents, parent_count, children, more_children } = message;
    const family = (ids, more) => [...ids.map((each) => linkTo(each, open)), more];
    rows.push(
      ["id", [id], "code"],
      ["clock", [String(clock)]],
      ["author", [author], "code"],
      ["signed", [`${codec}, ${bytesText(size)}`]],
      ["parents", parent_count === 0 ? ["none"] : family(parents, more(parent_count - parents.length))],
      ["children", children.length === 0 ? ["none"] : family(children, more_children ? "and more" : "")],
    );
  }
  element("detail-list").replaceChildren(
    ...rows.flatMap(([name, parts, style]) => {
      const term = document.createElement("dt");
      term.textContent = name;
      const value = document.createElement("dd");
      value.dataset.name = name;
      if (style) value.className = style;
      value.append(...parts);
      return [term, value];
    }),
  );
  put(element("detail-text"), message === null ? "" : message.whole ? message.text : `${message.text}…`);
};

const more = (count) => (count > 0 ? `and ${count} more` : "");
