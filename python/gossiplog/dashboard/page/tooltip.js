// What is said of a peer or an edge that somebody points at. All of it is text: names may be anybody's.

import { colourOf } from "./colours.js";
import { bytesText } from "./texts.js";

const AWAY = 16; // pixels from what it is about

const describe = (list, rows) => {
  list.replaceChildren(
    ...rows.flatMap(([name, text, isCode]) => {
      const term = document.createElement("dt");
      term.textContent = name;
      const value = document.createElement("dd");
      value.textContent = text;
      if (isCode) value.className = "code";
      return [term, value];
    }),
  );
};

const few = (texts, most) =>
  texts.length <= most ? texts.join(", ") : `${texts.slice(0, most).join(", ")} and ${texts.length - most} more`;

export class Tooltip {
  #element;
  #title = document.createElement("strong");
  #swatch = document.createElement("span");
  #list = document.createElement("dl");

  constructor(element) {
    this.#element = element;
    this.#swatch.className = "swatch";
    element.append(this.#swatch, this.#title, this.#list);
  }

  hide() {
    this.#element.hidden = true;
  }

  showPeer(state, name, x, y) {
    const peer = state.peers.get(name);
    if (peer === undefined) return this.hide();
    const others = [...state.others.get(name)];
    const labels = (wanted) => others.filter(wanted).map((other) => state.peers.get(other)?.label ?? other);
    const mesh = labels((other) => state.link(name, other) === "mesh");
    this.#swatch.style.background = peer.kind === "bootstrap" ? "#000" : colourOf(peer.root);
    this.#title.textContent = `${peer.label} · ${peer.running ? peer.kind : `${peer.kind}, stopped`}`;
    describe(this.#list, [
      ["id", name, true],
      ...(peer.agent ? [["runs", peer.agent]] : []),
      ["messages", String(peer.messages)],
      ["next clock", String(peer.clock)],
      ["root", peer.root || "none yet", true],
      ["heads", peer.heads.length > 0 ? few(peer.heads, 3) : "none", true],
      ["peers", others.length > 0 ? `${others.length}: ${few(labels(() => true), 12)}` : "none"],
      ...(mesh.length > 0 ? [["mesh", `${mesh.length}: ${few(mesh, 12)}`]] : []),
      ...(peer.bytes_sent + peer.bytes_received > 0
        ? [["bytes", `${bytesText(peer.bytes_sent)} sent, ${bytesText(peer.bytes_received)} received`]]
        : []),
    ]);
    this.#place(x, y);
  }

  showEdge(state, { peers, connected, links }, x, y) {
    const [first, second] = peers.map((name) => state.peers.get(name)?.label ?? name);
    this.#swatch.style.background = "transparent";
    this.#title.textContent = `${first} – ${second}`;
    describe(this.#list, [
      ["state", connected ? "connected" : "not connected"],
      [`${first} →`, links[0] === "none" ? "no messages in full" : links[0]],
      [`${second} →`, links[1] === "none" ? "no messages in full" : links[1]],
    ]);
    this.#place(x, y);
  }

  // Beside a point of the stage, and inside it.
  #place(x, y) {
    const element = this.#element;
    element.hidden = false;
    const { offsetWidth, offsetHeight, offsetParent } = element;
    const left = x + AWAY + offsetWidth <= offsetParent.clientWidth ? x + AWAY : x - AWAY - offsetWidth;
    const top = Math.min(y + AWAY, offsetParent.clientHeight - offsetHeight - 4);
    element.style.left = `${Math.max(4, left)}px`;
    element.style.top = `${Math.max(4, top)}px`;
  }
}
