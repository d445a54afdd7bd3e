// Mouse, touch and keys on the picture. What they ask for goes to `actions`; what they look at is `drawing.chosen`.

const NEAR_NODE = 20; // pixels
const NEAR_EDGE = 7;
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Pointing {
  #canvas;
  #state;
  #layout;
  #drawing;
  #tooltip;
  #actions;
  #spoken;
  #pointer = null; // where the mouse is over the canvas

  // actions: activate(peer), toggle(peer), cut(peer, other), changed(). spoken: an element for screen readers.
  constructor({ canvas, state, layout, drawing, tooltip, spoken, actions }) {
    this.#canvas = canvas;
    this.#state = state;
    this.#layout = layout;
    this.#drawing = drawing;
    this.#tooltip = tooltip;
    this.#spoken = spoken;
    this.#actions = actions;
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerleave", () => this.#leave());
    canvas.addEventListener("click", (event) => this.#click(event));
    canvas.addEventListener("contextmenu", (event) => this.#longPress(event));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => this.#leave());
  }

  // Choose a peer, from wherever.
  choose(peer) {
    this.#drawing.chosen = { peer, other: null };
    this.#show();
    this.#actions.changed();
  }

  // Say the newest of what is pointed at.
  refresh() {
    const { peer, other } = this.#drawing.chosen;
    // An edge that was cut is chosen no more.
    if (other !== null && !this.#state.others.get(peer)?.has(other)) this.choose(peer);
    if (peer !== null && !this.#state.peers.has(peer)) this.#leave();
    else if (!document.getElementById("tooltip").hidden) this.#show();
  }

  #hit({ offsetX, offsetY }) {
    const [x, y] = this.#drawing.toPlane(offsetX, offsetY);
    const node = this.#layout.find(x, y, this.#drawing.distance(NEAR_NODE));
    if (node !== undefined) return { peer: node.name };
    const link = this.#layout.findLink(x, y, this.#drawing.distance(NEAR_EDGE));
    return link === undefined ? {} : { edge: link.edge };
  }

  #move(event) {
    const { peer, edge } = this.#hit(event);
    this.#pointer = [event.offsetX, event.offsetY];
    this.#canvas.classList.toggle("over", peer !== undefined || edge !== undefined);
    this.#drawing.chosen =
      edge === undefined ? { peer: peer ?? null, other: null } : { peer: edge.peers[0], other: edge.peers[1] };
    this.#show();
    this.#actions.changed();
  }

  #leave() {
    this.#pointer = null;
    this.#drawing.chosen = { peer: null, other: null };
    this.#tooltip.hide();
    this.#actions.changed();
  }

  #click(event) {
    const { peer, edge } = this.#hit(event);
    if (peer !== undefined) this.#act(peer, event.shiftKey);
    else if (edge !== undefined) this.#actions.cut(...edge.peers);
  }

  #act(peer, isShifted) {
    if (isShifted) this.#actions.toggle(peer);
    else this.#actions.activate(peer);
  }

  // What a long touch is in browsers, and a click of the other button.
  #longPress(event) {
    const { peer } = this.#hit(event);
    if (peer === undefined) return;
    event.preventDefault();
    this.#actions.toggle(peer);
  }

  #key(event) {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!(key in KEYS) && !["Enter", "n", "x", "Delete", "Escape"].includes(key)) return;
    event.preventDefault();
    this.#pointer = null;
    const { peer, other } = this.#drawing.chosen;
    if (key in KEYS) this.choose(this.#towards(KEYS[key]));
    else if (key === "Escape") this.#leave();
    else if (peer === null) return this.#say("no peer chosen: arrow keys choose one");
    else if (key === "n") this.#nextEdge();
    // Of what changes the network, Controls says what has become of it.
    else if (key === "Enter") return this.#act(peer, event.shiftKey);
    else if (other === null) return this.#say("no edge chosen: N chooses the next one of the peer");
    else return this.#actions.cut(peer, other);
    this.#say(this.#standing());
  }

  #say(text) {
    this.#spoken.textContent = text;
  }

  // The nearest peer in a direction; the first one where none is chosen.
  #towards([dx, dy]) {
    const from = this.#layout.nodes.get(this.#drawing.chosen.peer);
    let found = this.#drawing.chosen.peer;
    let least = Infinity;
    for (const [name, node] of this.#layout.nodes) {
      if (from === undefined) return name;
      const [x, y] = [node.x - from.x, node.y - from.y];
      const along = x * dx + y * dy;
      const aside = Math.abs(x * dy - y * dx);
      if (name !== from.name && along > aside * 0.4 && along + 2 * aside < least) {
        least = along + 2 * aside;
        found = name;
      }
    }
    return found;
  }

  #nextEdge() {
    const { peer, other } = this.#drawing.chosen;
    const others = [...this.#state.others.get(peer)].sort();
    this.#drawing.chosen = { peer, other: others[(others.indexOf(other) + 1) % others.length] ?? null };
    this.#show();
    this.#actions.changed();
  }

  #show() {
    const { peer, other } = this.#drawing.chosen;
    const node = this.#layout.nodes.get(peer);
    if (node === undefined) return this.#tooltip.hide();
    const link = this.#layout.links.find(({ edge }) => edge.peers.includes(peer) && edge.peers.includes(other));
    const ends = link === undefined ? [node] : [link.source, link.target];
    // Without a mouse nobody can move it aside, so that it keeps to a corner.
    const where = {
      point: this.#pointer,
      away: ends.map(({ x, y }) => this.#drawing.toCanvas(x, y)),
      bottom: this.#drawing.bottom,
    };
    if (link !== undefined) this.#tooltip.showEdge(this.#state, link.edge, where);
    else this.#tooltip.showPeer(this.#state, peer, where);
  }

  // What is chosen, and how it stands.
  #standing() {
    const { peer, other } = this.#drawing.chosen;
    const one = this.#state.peers.get(peer);
    if (one === undefined) return "";
    if (other !== null) return `edge of ${one.label} and ${this.#state.peers.get(other)?.label}: X cuts it`;
    return `${one.label}: ${one.running ? `${one.messages} messages, root ${one.root.slice(-4)}` : "stopped"}`;
  }
}
