// The messages and their graph: a row for each message, and beside the rows, as one picture, the lines between them.

import { colourOfAuthor, showColours } from "./authors.js";
import { layOut } from "./lanes.js";
import { put } from "./texts.js";

const ROW = 26; // pixels, as the style has it
const RADIUS = 5;
const WIDEST = 260;
const LANE = 16;

export const shortId = (id) => id.slice(-6);
export const shortAuthor = (author) => `…${author.slice(-6)}`;

const bend = (line, x, y, toX, toY) => {
  if (x === toX) line.lineTo(toX, toY);
  else line.bezierCurveTo(x, (y + toY) / 2, toX, (y + toY) / 2, toX, toY);
};

export class Graph {
  #svg;
  #body;
  #actions;
  #rows = new Map();
  #messages = [];
  #heads = new Set();
  #layout = layOut([]);
  #chosen = null;

  // actions: choose(id).
  constructor(svg, body, actions) {
    this.#svg = d3.select(svg);
    this.#body = body;
    this.#actions = actions;
    body.addEventListener("click", ({ target }) => this.#focus(target.closest("tr")));
    body.addEventListener("focusin", ({ target }) => {
      const id = target.closest("tr")?.dataset.id;
      if (id !== undefined && id !== this.#chosen) actions.choose(id);
    });
  }

  get chosen() {
    return this.#chosen;
  }

  get messages() {
    return this.#messages;
  }

  get edges() {
    return this.#layout.edges;
  }

  // Show messages, the newest first. What was shown before and is still there is not touched.
  show(messages, heads) {
    this.#messages = messages;
    this.#heads = new Set(heads);
    this.#layout = layOut(messages);
    showColours(messages.map(({ author }) => author));
    const wanted = new Set(messages.map(({ id }) => id));
    for (const [id, row] of this.#rows)
      if (!wanted.has(id)) {
        row.remove();
        this.#rows.delete(id);
      }
    let before = null;
    for (const message of messages) {
      const row = this.#rows.get(message.id) ?? this.#add(message);
      const place = before === null ? this.#body.firstElementChild : before.nextElementSibling;
      if (place !== row) this.#body.insertBefore(row, place);
      before = row;
    }
    this.#draw();
  }

  // Choose a message that is shown, and have it in sight.
  choose(id, { isFocused = true } = {}) {
    this.#chosen = id;
    this.#mark();
    const row = this.#rows.get(id);
    if (row === undefined) return;
    if (isFocused && document.activeElement !== row) row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  has(id) {
    return this.#rows.has(id);
  }

  // The id beside the chosen one: a row up or down, or the nearest of its parents or children that is shown.
  beside(key) {
    const index = this.#messages.findIndex(({ id }) => id === this.#chosen);
    if (index < 0) return this.#messages[0]?.id;
    switch (key) {
      case "ArrowDown":
        return this.#messages[index + 1]?.id;
      case "ArrowUp":
        return this.#messages[index - 1]?.id;
      case "ArrowLeft":
        return this.#parentOf(this.#messages[index]);
      case "ArrowRight":
        return this.#messages.findLast(({ parents }) => parents.includes(this.#chosen))?.id;
    }
  }

  // One that is shown, if there is any.
  #parentOf({ parents }) {
    return parents.findLast((id) => this.#rows.has(id)) ?? parents.at(-1);
  }

  #focus(row) {
    row?.focus({ preventScroll: true });
  }

  #add({ id, clock, author, text, whole, unprintable }) {
    const row = document.createElement("tr");
    row.dataset.id = id;
    row.tabIndex = -1;
    const cells = [
      ["th", "id code", shortId(id)],
      ["td", "clock", String(clock)],
      ["td", "author code", shortAuthor(author)],
      ["td", "payload", whole ? text : `${text}…`],
    ].map(([tag, name, content]) => {
      const cell = document.createElement(tag);
      cell.className = name;
      put(cell, content);
      return cell;
    });
    cells[0].scope = "row";
    cells[0].title = id;
    cells[2].title = author;
    if (unprintable) cells[3].classList.add("unprintable");
    row.append(...cells);
    this.#rows.set(id, row);
    return row;
  }

  #draw() {
    const { placed, edges, width } = this.#layout;
    const phone = matchMedia("(max-width: 820px)").matches;
    const lane = Math.min(phone ? 11 : LANE, (phone ? 96 : WIDEST) / width);
    const x = (index) => 14 + index * lane;
    const y = (row) => ROW * (row + 0.5);
    const bottom = this.#messages.length * ROW;
    this.#svg.attr("width", x(width)).attr("height", bottom);
    const colours = new Map(this.#messages.map(({ id, author }) => [id, colourOfAuthor(author)]));
    this.#svg
      .selectAll("path")
      .data(edges, ({ child, parent }) => `${child} ${parent}`)
      .join("path")
      .attr("class", ({ to }) => (to === null ? "outside" : ""))
      .attr("stroke", ({ child }) => colours.get(child))
      .attr("d", ({ row, lane: from, through, to }) => {
        const line = d3.path();
        line.moveTo(x(from), y(row));
        const next = y(row + 1);
        const end = to === null ? bottom : y(to);
        const target = to === null ? through : placed[to];
        // To its lane within a row, down in it, and within the last row to the parent's.
        if (end <= next) bend(line, x(from), y(row), x(target), end);
        else {
          bend(line, x(from), y(row), x(through), next);
          line.lineTo(x(through), Math.max(next, end - ROW));
          bend(line, x(through), Math.max(next, end - ROW), x(target), end);
        }
        return line.toString();
      });
    this.#svg
      .selectAll("circle")
      .data(this.#messages, ({ id }) => id)
      .join("circle")
      .attr("r", Math.min(RADIUS, Math.max(2, lane * 0.42)))
      .attr("cx", (_, row) => x(placed[row]))
      .attr("cy", (_, row) => y(row))
      .attr("fill", ({ id }) => colours.get(id))
      .raise();
    const indent = `${Math.round(x(width - 1) + 14)}px`;
    const columns = this.#body.parentElement.tHead.rows[0];
    for (const row of [columns, ...this.#rows.values()]) row.style.paddingLeft = indent;
    this.#mark();
  }

  #mark() {
    const own = this.#messages.find(({ id }) => id === this.#chosen);
    const family = new Set(own?.parents);
    for (const { id, parents } of this.#messages) if (parents.includes(this.#chosen)) family.add(id);
    const first = this.#messages[0]?.id;
    const stop = this.#rows.has(this.#chosen) ? this.#chosen : first;
    for (const [id, row] of this.#rows) {
      row.classList.toggle("chosen", id === this.#chosen);
      row.classList.toggle("family", family.has(id));
      row.tabIndex = id === stop ? 0 : -1;
    }
    this.#svg
      .selectAll("circle")
      .classed("head", ({ id }) => this.#heads.has(id))
      .classed("chosen", ({ id }) => id === this.#chosen);
    this.#svg
      .selectAll("path")
      .classed("family", ({ child, parent }) => child === this.#chosen || parent === this.#chosen);
  }
}
