// A recording: events with their times, played at any speed, from any time on.

import { NetworkState } from "./state.js";
import { timeText } from "./log.js";

const MOST_KEYFRAMES = 100;
const LEAST_BETWEEN = 500; // events between two keyframes

export class Player {
  #state;
  #on;
  #events = [];
  #keyframes = []; // { index, snapshot }: the state before the event of that index
  #index = 0; // of the next event
  #playing = false;
  #speed = 1;
  #button = document.getElementById("play");
  #slider = document.getElementById("position");
  time = 0;

  // on: state(), when all of it is new; changes(events).
  constructor(state, on) {
    this.#state = state;
    this.#on = on;
    document.getElementById("player").hidden = false;
    document.getElementById("player").addEventListener("submit", (event) => event.preventDefault());
    this.#button.addEventListener("click", () => this.#setPlaying(!this.#playing));
    this.#slider.addEventListener("input", () => this.seek(Number(this.#slider.value)));
    document.getElementById("speed").addEventListener("input", ({ target }) => (this.#speed = Number(target.value)));
    document.addEventListener("keydown", (event) => {
      if (event.key !== " " || event.target.closest("button, input, select, summary")) return;
      event.preventDefault();
      this.#setPlaying(!this.#playing);
    });
  }

  // Take the text of a recording: a line that describes it, then a line for each event.
  load(text) {
    // What a killed program left of a last line does not count.
    const [, ...lines] = text.slice(0, text.lastIndexOf("\n")).split("\n");
    this.#events = lines.map((line) => JSON.parse(line));
    const between = Math.max(LEAST_BETWEEN, Math.ceil(this.#events.length / MOST_KEYFRAMES));
    const state = new NetworkState();
    this.#events.forEach((event, index) => {
      if (index % between === 0) this.#keyframes.push({ index, snapshot: state.snapshot() });
      state.apply(event);
    });
    if (this.#keyframes.length === 0) this.#keyframes.push({ index: 0, snapshot: state.snapshot() });
    this.length = state.now;
    this.#slider.max = String(this.length);
    this.seek(0);
    this.#setPlaying(true);
  }

  // Show the network at a time.
  seek(time) {
    const index = this.#after(time);
    const { index: begun, snapshot } = this.#keyframes.findLast((keyframe) => keyframe.index <= index);
    this.#state.load(snapshot);
    for (const event of this.#events.slice(begun, index)) this.#state.apply(event);
    this.#index = index;
    this.time = time;
    this.#on.state(this.#events.slice(Math.max(0, index - 500), index));
    this.#show();
  }

  // Play so many seconds of the browser's time. Returns whether anything goes on.
  advance(seconds) {
    if (!this.#playing) return false;
    this.time = Math.min(this.time + seconds * this.#speed, this.length);
    const end = this.#after(this.time);
    const events = this.#events.slice(this.#index, end).filter((event) => this.#state.apply(event));
    this.#index = end;
    if (events.length > 0) this.#on.changes(events);
    if (this.time >= this.length) this.#setPlaying(false);
    this.#show();
    return true;
  }

  // The index of the first event after a time.
  #after(time) {
    return d3.bisector((event) => event.at).right(this.#events, time);
  }

  #setPlaying(playing) {
    if (playing && this.time >= this.length) this.seek(0);
    this.#playing = playing;
    this.#button.textContent = playing ? "Pause" : "Play";
    this.#on.wake();
  }

  #show() {
    this.#slider.value = String(this.time);
    document.getElementById("position-text").textContent = `${timeText(this.time)} / ${timeText(this.length)}`;
  }
}
