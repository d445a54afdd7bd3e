// What moves between peers for a moment: messages, pushes, syncs, and rings where a message begins.

const MOST = 400;
const MILLISECONDS = { gossip: 480, push: 420, sync: 760, duplicate: 480, ring: 700 };

export class Pulses {
  #active = [];

  get active() {
    return this.#active;
  }

  // Show an event, if it is one that moves.
  take(event, now) {
    switch (event.event) {
      case "published":
        return this.#add("ring", event.peer, event.peer, now);
      case "delivered":
        return this.#add(event.by, event.source, event.peer, now);
      case "duplicated":
        return this.#add("duplicate", event.source, event.peer, now);
      case "sync_started":
        return this.#add("sync", event.peer, event.source, now);
    }
  }

  // Drop those that have arrived. Returns whether any moves still.
  advance(now) {
    if (this.#active.length > 0) this.#active = this.#active.filter((pulse) => now < pulse.end);
    return this.#active.length > 0;
  }

  clear() {
    this.#active = [];
  }

  #add(kind, from, to, now) {
    if (this.#active.length >= MOST) return;
    this.#active.push({ kind, from, to, start: now, end: now + MILLISECONDS[kind] });
  }
}
