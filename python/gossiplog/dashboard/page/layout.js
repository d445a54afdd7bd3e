// Where the nodes are, in a plane of their own: forces that settle, and stir a little when the network changes. Drawing
// asks for positions and moves nothing.

import { placesInRow } from "./rows.js";

const FIRST_TICKS = 120;
const FIRST_MILLISECONDS = 120;
const CHARGE = -260;
const STIR = 0.12; // of alpha: a change moves its surroundings, not everything
const MOVE = 0.7; // of alpha: all have other places
const REST = 0.012;

export class Layout {
  #nodes = new Map();
  #links = [];
  #structure = -1;
  #groups = null;
  #row = null; // where peers of a row or a ring stand
  #linkForce = d3.forceLink([]).id((node) => node.name);
  #linkStrength = this.#linkForce.strength(); // by the numbers of links of the ends
  #x = d3.forceX((node) => node.targetX);
  #y = d3.forceY((node) => node.targetY);
  #charge = d3.forceManyBody().strength(CHARGE).theta(1).distanceMax(900);
  #simulation = d3
    .forceSimulation([])
    .force("charge", this.#charge)
    .force("link", this.#linkForce.distance(74))
    .force("collide", d3.forceCollide(19))
    .force("x", this.#x)
    .force("y", this.#y)
    .alphaDecay(0.035)
    .velocityDecay(0.42)
    .stop();

  get nodes() {
    return this.#nodes;
  }

  get links() {
    return this.#links;
  }

  // Take over the peers and edges of a state. Returns whether they have changed.
  update(state) {
    if (state.structure === this.#structure && state.groups === this.#groups) return false;
    const first = this.#nodes.size === 0;
    for (const name of this.#nodes.keys()) if (!state.peers.has(name)) this.#nodes.delete(name);
    for (const [name] of state.peers) if (!this.#nodes.has(name)) this.#nodes.set(name, this.#place(name, state));
    this.#links = [...state.edges.values()].map((edge) => ({
      edge,
      source: this.#nodes.get(edge.peers[0]),
      target: this.#nodes.get(edge.peers[1]),
    }));
    const before = this.#row;
    this.#row = placesInRow(state, this.#row?.isRing ?? false);
    if (this.#row === null) this.#part(state.groups);
    else this.#lineUp();
    this.#simulation.nodes([...this.#nodes.values()]);
    this.#linkForce.links(this.#links);
    this.#structure = state.structure;
    this.#groups = state.groups;
    const isOther = this.#row?.isRing !== before?.isRing || this.#row?.places.size !== before?.places.size;
    if (this.#row === null && before !== null) this.#leaveLine();
    // Peers that know their places go there at once: forces would only tangle them.
    if (first || (before === null && isOther)) this.#settle();
    else this.#simulation.alpha(Math.max(this.#simulation.alpha(), isOther ? MOVE : STIR));
    return true;
  }

  // Move by one step. Returns whether anything moves still.
  tick() {
    if (this.#simulation.alpha() < REST) return false;
    this.#simulation.tick();
    return true;
  }

  // The node that is nearest to a point of the plane, within a distance.
  find(x, y, distance) {
    return this.#simulation.find(x, y, distance);
  }

  // The link that is nearest to a point, within a distance.
  findLink(x, y, distance) {
    let found;
    let nearest = distance * distance;
    for (const link of this.#links) {
      const { source, target } = link;
      const [dx, dy] = [target.x - source.x, target.y - source.y];
      const along = Math.max(0, Math.min(1, ((x - source.x) * dx + (y - source.y) * dy) / (dx * dx + dy * dy || 1)));
      const [ox, oy] = [x - source.x - along * dx, y - source.y - along * dy];
      if (ox * ox + oy * oy < nearest) {
        nearest = ox * ox + oy * oy;
        found = link;
      }
    }
    return found;
  }

  // The corners of what is there.
  bounds() {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const { x, y } of this.#nodes.values()) {
      left = Math.min(left, x);
      right = Math.max(right, x);
      top = Math.min(top, y);
      bottom = Math.max(bottom, y);
    }
    return this.#nodes.size === 0 ? { left: -1, top: -1, right: 1, bottom: 1 } : { left, top, right, bottom };
  }

  // A new node begins beside one that it is connected to, so that it does not fly through the picture.
  #place(name, state) {
    const near = [...state.others.get(name)].map((other) => this.#nodes.get(other)).find((node) => node !== undefined);
    // Golden angles: no two begin in one place, and the same network looks the same each time.
    const angle = this.#nodes.size * 2.39996;
    const radius = near === undefined ? 24 * Math.sqrt(this.#nodes.size + 0.5) : 30;
    return {
      name,
      x: (near?.x ?? 0) + radius * Math.cos(angle),
      y: (near?.y ?? 0) + radius * Math.sin(angle),
      targetX: 0,
      targetY: 0,
    };
  }

  // The groups of a partition drift apart.
  #part(groups) {
    const apart = 34 * Math.sqrt(this.#nodes.size);
    const count = groups?.length ?? 1;
    for (const node of this.#nodes.values()) node.targetX = node.targetY = 0;
    groups?.forEach((group, index) => {
      for (const name of group) {
        const node = this.#nodes.get(name);
        if (node !== undefined) node.targetX = (index - (count - 1) / 2) * apart;
      }
    });
    this.#x.x((node) => node.targetX).strength(groups === null ? 0.06 : 0.16);
    this.#y.y((node) => node.targetY).strength(groups === null ? 0.075 : 0.09);
    this.#charge.strength(CHARGE);
    this.#linkForce.strength(this.#linkStrength);
  }

  // Each peer of a row or a ring goes to its place, and nothing else moves it.
  #lineUp() {
    for (const [name, [x, y]] of this.#row.places) {
      const node = this.#nodes.get(name);
      [node.targetX, node.targetY] = [x, y];
    }
    this.#x.x((node) => node.targetX).strength(0.4);
    this.#y.y((node) => node.targetY).strength(0.4);
    this.#charge.strength(0);
    this.#linkForce.strength(0);
  }

  // Forces along a line never leave it.
  #leaveLine() {
    let number = 0;
    for (const node of this.#nodes.values()) node.y += 20 * Math.sin(2.39996 * ++number);
  }

  #settle() {
    const end = performance.now() + FIRST_MILLISECONDS;
    this.#simulation.alpha(1);
    for (let ticks = 0; ticks < FIRST_TICKS && performance.now() < end; ticks++) this.#simulation.tick();
  }
}
