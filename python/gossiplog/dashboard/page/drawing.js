// The picture, on a canvas: edges on a layer that is kept while nothing of them moves, nodes and pulses anew in each
// frame. It reads the state and the layout, and changes neither.

import { colourOf, inkOn, shortRoot, themeColour } from "./colours.js";

const FULL = 2 * Math.PI;
const MARGIN = 46;
const DENSE = 600; // edges

export class Drawing {
  #canvas;
  #context;
  #edges = document.createElement("canvas");
  #edgesContext = this.#edges.getContext("2d");
  #view = null; // scale, and where the plane's origin is
  #stale = true; // whether the layer of edges has to be drawn again
  isSimplified = false; // whether edges were drawn for the moment
  bottom = 0; // pixels there that something covers
  chosen = { peer: null, other: null }; // a peer that is looked at, and the end of one of its edges

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.resize();
  }

  // Take the size that the page gives the canvas.
  resize() {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    this.ratio = ratio;
    this.width = this.#canvas.clientWidth;
    this.height = this.#canvas.clientHeight;
    for (const canvas of [this.#canvas, this.#edges]) {
      canvas.width = Math.max(1, Math.round(this.width * ratio));
      canvas.height = Math.max(1, Math.round(this.height * ratio));
    }
    this.#view = null;
    this.#stale = true;
  }

  // Have edges drawn again: they, their ends, or the colours have changed.
  invalidate() {
    this.#stale = true;
  }

  // A point of the canvas in the layout's plane, and back.
  toPlane(x, y) {
    const { scale, left, top } = this.#view ?? { scale: 1, left: 0, top: 0 };
    return [(x - left) / scale, (y - top) / scale];
  }

  toCanvas(x, y) {
    const { scale, left, top } = this.#view ?? { scale: 1, left: 0, top: 0 };
    return [x * scale + left, y * scale + top];
  }

  // What a distance on the canvas is in the plane.
  distance(pixels) {
    return pixels / (this.#view?.scale ?? 1);
  }

  // Bring all of the layout into sight, gently. Returns whether the view moves still.
  fit(layout) {
    const { left, top, right, bottom } = layout.bounds();
    const wide = Math.max(1, this.width - 2 * MARGIN);
    const high = Math.max(1, this.height - this.bottom - 2 * MARGIN);
    const scale = Math.min(wide / Math.max(right - left, 1), high / Math.max(bottom - top, 1), 3.2);
    const target = {
      scale,
      left: this.width / 2 - ((left + right) / 2) * scale,
      top: (this.height - this.bottom) / 2 - ((top + bottom) / 2) * scale,
    };
    if (this.#view === null) {
      this.#view = target;
      return true;
    }
    const gap = Math.max(
      Math.abs(target.left - this.#view.left),
      Math.abs(target.top - this.#view.top),
      400 * Math.abs(target.scale - this.#view.scale),
    );
    if (gap < 0.5) return false;
    for (const name of ["scale", "left", "top"]) this.#view[name] += (target[name] - this.#view[name]) * 0.14;
    this.#stale = true;
    return true;
  }

  radius(count) {
    const room = Math.sqrt((this.width * this.height) / Math.max(count, 1));
    return Math.max(4.5, Math.min(17, room * 0.115));
  }

  // Draw a frame. Whether something of the layout moves still, the caller knows.
  frame(state, layout, pulses, now, isMoving = false) {
    const radius = this.radius(layout.nodes.size);
    this.#project(layout);
    if (this.#stale || (this.isSimplified && !isMoving)) {
      this.#drawEdges(layout, radius, isMoving);
      this.#stale = false;
    }
    const context = this.#context;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    context.drawImage(this.#edges, 0, 0);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.#drawChosen(context, state, layout, radius);
    this.#drawPulses(context, layout, pulses, now, radius);
    this.#drawNodes(context, state, layout, radius);
    this.#drawRings(context, layout, pulses, now, radius);
  }

  // Where each node is on the canvas, once for all that is drawn of it.
  #project(layout) {
    const { scale, left, top } = this.#view ?? { scale: 1, left: 0, top: 0 };
    for (const node of layout.nodes.values()) {
      node.left = node.x * scale + left;
      node.top = node.y * scale + top;
    }
  }

  #drawEdges(layout, radius, isMoving) {
    const context = this.#edgesContext;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.#edges.width, this.#edges.height);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    const kinds = { mesh: [], lazy: [], plain: [] };
    for (const link of layout.links) kinds[edgeKind(link.edge)].push(link);
    const dense = layout.links.length > DENSE;
    // Dashes and triangles of thousands of edges take longer than a frame: they come back when the picture rests.
    const plainly = dense && isMoving;
    this.isSimplified = plainly;
    // One path for each kind: a stroke for each edge would take most of a frame.
    const styles = {
      plain: { colour: "plain", dash: [4, 3], width: dense ? 0.7 : 1, alpha: dense ? 0.45 : 0.85 },
      lazy: { colour: "mesh", dash: [0.1, 4], width: dense ? 1 : 1.8, alpha: dense ? 0.55 : 0.9 },
      mesh: { colour: "mesh", dash: [], width: dense ? 0.8 : 1.5, alpha: dense ? 0.5 : 0.85 },
    };
    for (const [kind, { colour, dash, width, alpha }] of Object.entries(styles)) {
      if (kinds[kind].length === 0) continue;
      context.beginPath();
      for (const { source, target } of kinds[kind]) {
        context.moveTo(source.left, source.top);
        context.lineTo(target.left, target.top);
      }
      context.setLineDash(plainly ? [] : dash);
      context.lineCap = kind === "lazy" ? "round" : "butt";
      context.lineWidth = width;
      context.globalAlpha = plainly && kind !== "mesh" ? alpha * 0.6 : alpha;
      context.strokeStyle = themeColour(colour);
      context.stroke();
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
    if (plainly) return;
    context.beginPath();
    for (const { edge, source, target } of layout.links) {
      if (edge.links[0] === "mesh") this.#triangle(context, source, target, radius, dense);
      if (edge.links[1] === "mesh") this.#triangle(context, target, source, radius, dense);
    }
    context.globalAlpha = dense ? 0.6 : 0.95;
    context.fillStyle = themeColour("mesh");
    context.fill();
    context.globalAlpha = 1;
  }

  // A triangle near the peer whose mesh it is, pointing to the member.
  #triangle(context, from, to, radius, dense) {
    const dx = to.left - from.left;
    const dy = to.top - from.top;
    const length = Math.sqrt(dx * dx + dy * dy);
    if (length < 2.6 * radius) return;
    const ux = dx / length;
    const uy = dy / length;
    const size = dense ? 3 : Math.max(3.4, radius * 0.42);
    const at = Math.min(radius + 2 + size * 1.9, length / 2);
    const tipX = from.left + ux * at;
    const tipY = from.top + uy * at;
    const backX = tipX - ux * size * 1.7;
    const backY = tipY - uy * size * 1.7;
    context.moveTo(tipX, tipY);
    context.lineTo(backX - uy * size * 0.8, backY + ux * size * 0.8);
    context.lineTo(backX + uy * size * 0.8, backY - ux * size * 0.8);
    context.closePath();
  }

  #drawChosen(context, state, layout, radius) {
    const { peer, other } = this.chosen;
    const node = layout.nodes.get(peer);
    if (node === undefined) return;
    context.strokeStyle = themeColour("accent");
    context.lineWidth = 1.4;
    context.globalAlpha = 0.75;
    const { left: x, top: y } = node;
    for (const name of state.others.get(peer) ?? []) {
      const end = layout.nodes.get(name);
      if (end === undefined) continue;
      context.beginPath();
      context.lineWidth = name === other ? 4 : 1.4;
      context.moveTo(x, y);
      context.lineTo(end.left, end.top);
      context.stroke();
    }
    context.globalAlpha = 1;
    context.lineWidth = 2.5;
    context.beginPath();
    context.arc(x, y, radius + 5, 0, FULL);
    context.stroke();
  }

  #drawNodes(context, state, layout, radius) {
    const quiet = themeColour("quiet");
    const ground = themeColour("ground");
    const inside = radius >= 11;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const size = Math.round(inside ? radius * 0.68 : Math.max(8, Math.min(10, radius * 1.2)));
    const font = `${size}px ui-monospace, "DejaVu Sans Mono", monospace`;
    for (const [name, node] of layout.nodes) {
      const peer = state.peers.get(name);
      if (peer === undefined) continue;
      const { left: x, top: y } = node;
      const colour = peer.kind === "bootstrap" ? "#000000" : colourOf(peer.root);
      const reach = peer.kind === "hub" || peer.kind === "bootstrap" ? radius * 1.18 : radius;
      context.beginPath();
      shape(context, peer.kind, x, y, reach);
      if (peer.running) {
        context.fillStyle = colour;
        context.fill();
        context.lineWidth = 1.5;
        context.strokeStyle = peer.kind === "bootstrap" ? quiet : ground;
        context.stroke();
      } else {
        context.fillStyle = ground;
        context.fill();
        context.lineWidth = 1.6;
        context.setLineDash([3, 2.5]);
        context.strokeStyle = colour;
        context.stroke();
        context.setLineDash([]);
      }
      if (peer.root !== "" && peer.kind !== "bootstrap") {
        context.font = font;
        context.fillStyle = inside && peer.running ? inkOn(colour) : quiet;
        context.fillText(shortRoot(peer.root), x, inside ? y + 0.5 : y + reach + 6.5);
      }
    }
    // Labels where there is room for them.
    if (layout.nodes.size > 40) return;
    context.font = `600 11px system-ui, "DejaVu Sans", sans-serif`;
    context.fillStyle = themeColour("text");
    // Around each letter, so that it is read above lines and triangles.
    context.strokeStyle = ground;
    context.lineWidth = 3.5;
    context.lineJoin = "round";
    for (const [name, node] of layout.nodes) {
      const peer = state.peers.get(name);
      if (peer === undefined) continue;
      const { left: x, top: y } = node;
      const label = peer.label.length > 14 ? `${peer.label.slice(0, 13)}…` : peer.label;
      const height = inside ? y + radius + 10 : y - radius - 7;
      context.strokeText(label, x, height);
      context.fillText(label, x, height);
    }
  }

  #drawPulses(context, layout, pulses, now, radius) {
    for (const { kind, from, to, start, end } of pulses.active) {
      const [source, target] = [layout.nodes.get(from), layout.nodes.get(to)];
      if (kind === "ring" || source === undefined || target === undefined) continue;
      const passed = Math.max(0, Math.min(1, (now - start) / (end - start)));
      const eased = passed * (2 - passed);
      const { left: x, top: y } = source;
      const { left: toX, top: toY } = target;
      const [atX, atY] = [x + (toX - x) * eased, y + (toY - y) * eased];
      const colour = kind === "duplicate" ? themeColour("plain") : themeColour(kind);
      if (kind !== "duplicate") {
        // A trail, which shows the way when the dot is nearly there.
        const tail = Math.max(0, eased - 0.28);
        context.globalAlpha = (kind === "sync" ? 0.55 : 0.4) * (1 - passed * 0.6);
        context.strokeStyle = colour;
        context.lineWidth = kind === "sync" ? 5 : 2.5;
        context.lineCap = "round";
        context.beginPath();
        context.moveTo(x + (toX - x) * tail, y + (toY - y) * tail);
        context.lineTo(atX, atY);
        context.stroke();
      }
      context.globalAlpha = kind === "duplicate" ? 0.8 : 1;
      context.fillStyle = colour;
      context.beginPath();
      context.arc(atX, atY, kind === "duplicate" ? 2 : Math.max(2.6, radius * 0.32), 0, FULL);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  #drawRings(context, layout, pulses, now, radius) {
    context.strokeStyle = themeColour("accent");
    for (const { kind, from, start, end } of pulses.active) {
      const node = layout.nodes.get(from);
      if (kind !== "ring" || node === undefined) continue;
      const passed = Math.max(0, Math.min(1, (now - start) / (end - start)));
      context.globalAlpha = 1 - passed;
      context.lineWidth = 3 - 2 * passed;
      context.beginPath();
      context.arc(node.left, node.top, radius + 2 + passed * 22, 0, FULL);
      context.stroke();
    }
    context.globalAlpha = 1;
  }
}

// How an edge is drawn: solid where either end has the other in its mesh, dotted for fan-out and lazy links.
export const edgeKind = ({ links }) =>
  links.includes("mesh") ? "mesh" : links.some((link) => link !== "none") ? "lazy" : "plain";

const shape = (context, kind, x, y, size) => {
  if (kind === "hub") context.roundRect(x - size, y - size, 2 * size, 2 * size, size * 0.4);
  else if (kind === "browser") {
    const reach = size * 1.25;
    context.moveTo(x, y - reach);
    context.lineTo(x + reach, y);
    context.lineTo(x, y + reach);
    context.lineTo(x - reach, y);
    context.closePath();
  } else context.arc(x, y, size, 0, FULL);
};
