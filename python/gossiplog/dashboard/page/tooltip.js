// What is said of a peer or an edge that somebody points at. All of it is text: names may be anybody's.

import { colourOf } from "./colours.js";
import { bytesText } from "./texts.js";

const AWAY = 16; // pixels from what it is about
const EDGE = 4; // pixels from the edge of the stage

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

  // where: { point, away, bottom }: a point of the stage to be beside; or null, to be in the corner that is farthest
  // from a peer or from the two ends of an edge, above what covers the bottom.
  showPeer(state, name, where) {
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
    this.#place(where);
  }

  showEdge(state, { peers, connected, links }, where) {
    const [first, second] = peers.map((name) => state.peers.get(name)?.label ?? name);
    this.#swatch.style.background = "transparent";
    this.#title.textContent = `${first} – ${second}`;
    describe(this.#list, [
      ["state", connected ? "connected" : "not connected"],
      [`${first} →`, links[0] === "none" ? "no messages in full" : links[0]],
      [`${second} →`, links[1] === "none" ? "no messages in full" : links[1]],
    ]);
    this.#place(where);
  }

  #place({ point, away, bottom }) {
    const element = this.#element;
    element.hidden = false;
    // Where it was before, it had perhaps less room.
    element.style.left = element.style.top = "0";
    const { offsetWidth, offsetHeight, offsetParent } = element;
    const [right, low] = [offsetParent.clientWidth - offsetWidth, offsetParent.clientHeight - offsetHeight];
    const isInCorner = point === null;
    const [left, top] = isInCorner
      ? corner(away, offsetWidth, offsetHeight, right, low - bottom)
      : beside(point, offsetWidth, right, low);
    element.style.left = `${Math.max(EDGE, left)}px`;
    element.style.top = `${Math.max(EDGE, top)}px`;
  }
}

// Beside a point, and within the stage; right and low are the most that left and top may be.
const beside = ([x, y], width, right, low) => [
  x + AWAY <= right ? x + AWAY : x - AWAY - width,
  Math.min(y + AWAY, low - EDGE),
];

// The corner where a box is farthest from two points and what is between them.
const corner = (points, width, height, right, low) => {
  const [[x, y], [toX, toY]] = [points[0], points.at(-1)];
  const between = d3.range(0, 1.01, 0.1).map((part) => [x + (toX - x) * part, y + (toY - y) * part]);
  const distance = ([left, top]) =>
    d3.min(between, ([atX, atY]) =>
      Math.hypot(Math.max(left - atX, 0, atX - left - width), Math.max(top - atY, 0, atY - top - height)),
    );
  const corners = [right - EDGE, EDGE].flatMap((left) => [EDGE, low - EDGE].map((top) => [left, top]));
  return d3.greatest(corners, (one, other) => d3.ascending(distance(one), distance(other)));
};
