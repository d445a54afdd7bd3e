// The peers in words: a row for each, the same as the picture shows, for those who do not see it, and for tests.

import { colourOf, shortRoot } from "./colours.js";
import { put } from "./texts.js";

const COLUMNS = 5; // beside the peer's own
const LABELS = new Intl.Collator("en", { numeric: true });

// The order of rows: a bootstrap first, the others by number or name, whichever of them was heard of first.
const order = (peer, other) =>
  (other.kind === "bootstrap") - (peer.kind === "bootstrap") || LABELS.compare(peer.label, other.label);

export class PeerTable {
  #body;
  #state;
  #actions;
  #rows = new Map();
  #unsorted = false; // whether a row is new, or is called something else
  #current = null; // the row that the Tab key comes to

  // actions: activate(peer), toggle(peer), choose(peer).
  constructor(body, state, actions) {
    this.#body = body;
    this.#state = state;
    this.#actions = actions;
    body.addEventListener("keydown", (event) => this.#key(event));
    body.addEventListener("focusin", ({ target }) => this.#focus(target.closest("tr")));
    body.addEventListener("click", ({ target, shiftKey }) => {
      const peer = target.closest("tr")?.dataset.peer;
      if (peer !== undefined) shiftKey ? actions.toggle(peer) : actions.choose(peer);
    });
  }

  // Bring all rows up to date; what has not changed is not touched.
  update() {
    for (const [name, row] of this.#rows)
      if (!this.#state.peers.has(name)) {
        row.remove();
        this.#rows.delete(name);
        if (this.#current === name) this.#current = null;
      }
    for (const [name, peer] of this.#state.peers) {
      const row = this.#rows.get(name) ?? this.#add(name);
      this.#fill(row, name, peer);
    }
    if (this.#unsorted) this.#sort();
    this.#unsorted = false;
    if (this.#current === null && this.#rows.size > 0) this.#makeCurrent(this.#rows.keys().next().value);
  }

  // Mark the peer that is looked at.
  mark(peer) {
    for (const [name, row] of this.#rows) row.classList.toggle("chosen", name === peer);
  }

  #add(name) {
    const row = document.createElement("tr");
    row.dataset.peer = name;
    row.tabIndex = -1;
    const head = document.createElement("th");
    head.scope = "row";
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    const root = document.createElement("td");
    root.className = "code";
    root.append(swatch, document.createElement("span"));
    row.append(head, root, ...Array.from({ length: COLUMNS - 1 }, () => document.createElement("td")));
    this.#rows.set(name, row);
    this.#body.append(row);
    return row;
  }

  // Put the rows in order: what was heard of a peer first, another process may have reported late.
  #sort() {
    const of = (row) => this.#state.peers.get(row.dataset.peer);
    const rows = [...this.#body.children];
    const sorted = rows.toSorted((one, other) => order(of(one), of(other)));
    if (rows.every((row, at) => row === sorted[at])) return;
    const focused = document.activeElement;
    this.#body.append(...sorted);
    if (this.#body.contains(focused)) focused.focus();
  }

  #fill(row, name, peer) {
    const [head, root, messages, clock, links, status] = row.children;
    const others = this.#state.others.get(name);
    let mesh = 0;
    for (const other of others) if (this.#state.link(name, other) === "mesh") mesh++;
    if (head.textContent !== peer.label || row.dataset.kind !== peer.kind) {
      put(head, peer.label);
      this.#unsorted = true;
    }
    if (row.dataset.root !== peer.root || row.dataset.kind !== peer.kind) this.paint(row, peer);
    put(root.lastChild, shortRoot(peer.root) || "–");
    put(messages, String(peer.messages));
    put(clock, String(peer.clock));
    put(links, mesh > 0 ? `${others.size} · ${mesh}` : String(others.size));
    put(status, peer.running ? peer.kind : "stopped");
    row.classList.toggle("stopped", !peer.running);
  }

  // Give a row the colour of its root.
  paint(row, peer) {
    row.dataset.root = peer.root;
    row.dataset.kind = peer.kind;
    row.dataset.colour = peer.kind === "bootstrap" ? "#000000" : colourOf(peer.root);
    row.children[1].firstChild.style.background = row.dataset.colour;
  }

  // The theme changed: repaint.
  repaint() {
    for (const [name, row] of this.#rows) this.paint(row, this.#state.peers.get(name));
  }

  #makeCurrent(name) {
    const before = this.#rows.get(this.#current);
    if (before !== undefined) before.tabIndex = -1;
    this.#current = name;
    this.#rows.get(name).tabIndex = 0;
  }

  #focus(row) {
    if (row === null || row === undefined) return;
    this.#makeCurrent(row.dataset.peer);
    this.#actions.choose(row.dataset.peer);
  }

  #key(event) {
    const row = event.target.closest("tr");
    const goal = {
      ArrowDown: row?.nextElementSibling,
      ArrowUp: row?.previousElementSibling,
      Home: this.#body.firstElementChild,
      End: this.#body.lastElementChild,
    }[event.key];
    if (goal) goal.focus();
    else if (event.key === "Enter" && row)
      event.shiftKey ? this.#actions.toggle(row.dataset.peer) : this.#actions.activate(row.dataset.peer);
    else return;
    event.preventDefault();
  }
}
