// The log of events, newest first, with a filter. Events that come by the thousand are not in it: the charts have them.

const MOST_KEPT = 1000;
const MOST_SHOWN = 150;

export const timeText = (at) => {
  const minutes = Math.floor(at / 60);
  return `${minutes}:${(at - 60 * minutes).toFixed(1).padStart(4, "0")}`;
};

export class EventLog {
  #list;
  #kind;
  #text;
  #state;
  #entries = []; // the oldest first
  #fresh = 0; // of them, those that are not shown yet
  #isMixed = false; // whether some of these are older than others

  constructor({ list, kind, text, state }) {
    this.#list = list;
    this.#kind = kind;
    this.#text = text;
    this.#state = state;
    for (const input of [kind, text]) input.addEventListener("input", () => this.#showAll());
  }

  take(event) {
    const said = this.#say(event);
    if (said === undefined) return;
    const entry = { at: event.at, kind: said[0], text: said[1] };
    // Each process reports by itself, so that one may tell later what happened before.
    const place = d3.bisector(({ at }) => at).right(this.#entries, entry.at);
    this.#isMixed ||= place < this.#entries.length;
    this.#entries.splice(place, 0, entry);
    this.#fresh++;
    if (this.#entries.length > MOST_KEPT) this.#entries.splice(0, MOST_KEPT / 10);
  }

  // Begin anew with some events.
  reset(events) {
    this.#entries = [];
    for (const event of events) this.take(event);
    this.#showAll();
  }

  // Show what has come since the last time.
  update() {
    if (this.#fresh === 0) return;
    if (this.#isMixed) return this.#showAll();
    const fresh = this.#entries.slice(-Math.min(this.#fresh, MOST_SHOWN)).filter((entry) => this.#passes(entry));
    this.#fresh = 0;
    this.#list.prepend(...fresh.reverse().map(asItem));
    while (this.#list.children.length > MOST_SHOWN) this.#list.lastElementChild.remove();
  }

  #showAll() {
    this.#fresh = 0;
    this.#isMixed = false;
    const chosen = this.#entries.filter((entry) => this.#passes(entry)).slice(-MOST_SHOWN);
    this.#list.replaceChildren(...chosen.reverse().map(asItem));
  }

  #passes({ kind, text }) {
    const wanted = this.#text.value.trim().toLowerCase();
    return (this.#kind.value === "" || kind === this.#kind.value) && text.toLowerCase().includes(wanted);
  }

  // The kind of an event and a line about it; undefined for what is left out.
  #say(event) {
    const label = (name) => this.#state.peers.get(name)?.label ?? name;
    const [peer, other, source] = [event.peer, event.other, event.source].map((name) => name && label(name));
    switch (event.event) {
      case "peer_added":
        return ["peers", `${event.label} joins as ${event.kind}`];
      case "peer_removed":
        return ["peers", `${peer} is removed`];
      case "peer_started":
        return ["peers", `${peer} starts again`];
      case "peer_stopped":
        return ["peers", `${peer} stops`];
      case "connected":
        return ["links", `${peer} – ${other} connected`];
      case "disconnected":
        return ["links", `${peer} – ${other} disconnected`];
      case "link_changed":
        if (event.link === "none") return ["links", `${peer} drops ${other}`];
        return ["links", `${peer} takes ${other} into ${LINKS[event.link]}`];
      case "published":
        return ["messages", `${peer} appends ${event.text || event.message}`];
      case "sync_ended":
        if (event.error) return ["trouble", `${peer} syncs from ${source}: ${event.error}`];
        return ["syncs", `${peer} syncs from ${source}: ${event.inserted} new`];
      case "refused":
        return ["trouble", `${peer} refuses ${event.message || source}: ${event.reason}`];
      case "partitioned":
        return ["trouble", `the network is cut into ${event.groups.length} groups`];
      case "healed":
        return ["peers", "the network is whole"];
      case "rate_changed":
        return ["peers", `${event.rate > 0 ? event.rate : "no"} messages a second by themselves`];
      case "noted":
        return ["peers", event.peer ? `${peer}: ${event.text}` : event.text];
    }
  }
}

const LINKS = { mesh: "its mesh", lazy: "its lazy links", fanout: "its fan-out" };

const asItem = ({ at, kind, text }) => {
  const item = document.createElement("li");
  item.className = kind;
  const time = document.createElement("time");
  time.textContent = timeText(at);
  const line = document.createElement("span");
  line.textContent = text;
  item.append(time, line);
  return item;
};
