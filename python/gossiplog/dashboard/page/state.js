// The state of a network: what follows from its events. The same fold as state.py, and held against it by a test: who
// changes one changes both. Nothing here knows the page.

const MOST_PEERS = 2_000;
const MOST_EDGES = 20_000;
const MOST_RECENT = 100;
const MOST_SAMPLES = 600;
const SAMPLE_SECONDS = 0.5;
const MOST_LATENCIES = 500;
const UNREMEMBERED = new Set(["committed", "delivered", "duplicated", "traffic_counted"]);

// Names may hold any character, so that no separator is safe.
export const pairKey = (peer, other) =>
  peer < other ? `${peer.length}:${peer}${other}` : `${other.length}:${other}${peer}`;

export class NetworkState {
  constructor() {
    this.load({
      at: 0,
      peers: {},
      edges: [],
      groups: null,
      rate: 0,
      totals: { published: 0, gossip: 0, push: 0, sync: 0, duplicated: 0, syncs: 0, refused: 0, omitted: 0 },
      diverged: null,
      bytes: 0,
      sampling: { interval: SAMPLE_SECONDS, due: SAMPLE_SECONDS, latencies: [] },
      samples: [],
      recent: [],
    });
  }

  // Begin with a snapshot, as `snapshot` here and in state.py makes it.
  load(snapshot) {
    this.now = snapshot.at;
    this.peers = new Map(Object.entries(snapshot.peers).map(([name, peer]) => [name, { ...peer }]));
    this.others = new Map([...this.peers.keys()].map((name) => [name, new Set()]));
    this.edges = new Map();
    for (const { peers, connected, links } of snapshot.edges) {
      const [first, second] = peers;
      const turned = second < first;
      this.edges.set(pairKey(first, second), {
        peers: turned ? [second, first] : [first, second],
        connected,
        links: turned ? [links[1], links[0]] : [...links],
      });
      this.others.get(first).add(second);
      this.others.get(second).add(first);
    }
    this.groups = snapshot.groups;
    this.rate = snapshot.rate;
    this.totals = { ...snapshot.totals };
    this.diverged = snapshot.diverged;
    this.interval = snapshot.sampling.interval;
    this.due = snapshot.sampling.due;
    this.latencies = [...snapshot.sampling.latencies];
    this.samples = [...snapshot.samples];
    this.recent = [...snapshot.recent];
    this.roots = new Map();
    this.bytes = snapshot.bytes;
    for (const peer of this.peers.values()) this.#knowRoot(peer);
    // Counts changes of what is drawn as nodes and edges.
    this.structure = (this.structure ?? 0) + 1;
  }

  snapshot() {
    return {
      at: this.now,
      peers: Object.fromEntries([...this.peers].map(([name, peer]) => [name, { ...peer }])),
      edges: [...this.edges.values()].map(({ peers, connected, links }) => ({
        peers: [...peers],
        connected,
        links: [...links],
      })),
      groups: this.groups,
      rate: this.rate,
      totals: { ...this.totals },
      diverged: this.diverged,
      bytes: this.bytes,
      sampling: { interval: this.interval, due: this.due, latencies: [...this.latencies] },
      samples: [...this.samples],
      recent: [...this.recent],
    };
  }

  // Take the figures of a batch, which its events do not add up to: the server has left some out.
  correct({ at, totals, diverged, bytes, samples, all_samples }) {
    this.now = at;
    this.totals = { ...totals };
    this.diverged = diverged;
    this.bytes = bytes;
    this.samples = all_samples ? [...samples] : [...this.samples, ...samples];
  }

  // Take an event; returns false where it says nothing new, as when the other end reported it already. `sampling` is
  // false where samples come with the batches.
  apply(event, sampling = true) {
    if (event.at > this.now) {
      if (sampling && event.at >= this.due) this.#sampleUntil(event.at);
      this.now = event.at;
    }
    if (this.#folds[event.event]?.(event) === false) return false;
    if (!UNREMEMBERED.has(event.event)) {
      this.recent.push(event);
      if (this.recent.length > MOST_RECENT) this.recent.shift();
    }
    return true;
  }

  // How a peer uses its connection to another.
  link(peer, other) {
    const edge = this.edges.get(pairKey(peer, other));
    return edge === undefined ? "none" : edge.links[edge.peers[0] === peer ? 0 : 1];
  }

  #folds = {
    peer_added: ({ peer: name, label, kind, agent }) => {
      const peer = this.#peer(name, label, kind, agent);
      if (peer === undefined) return;
      this.#forgetRoot(peer);
      Object.assign(peer, { label, kind, agent, running: true });
      this.#knowRoot(peer);
      this.#noteDivergence();
      this.structure++;
    },
    peer_removed: ({ peer: name }) => {
      const peer = this.peers.get(name);
      if (peer === undefined) return;
      this.#endEdges(name);
      this.#forgetRoot(peer);
      this.#noteDivergence();
      this.peers.delete(name);
      this.others.delete(name);
      this.structure++;
    },
    peer_started: ({ peer: name }) => {
      const peer = this.#peer(name);
      if (peer === undefined || peer.running) return false;
      peer.running = true;
      this.#knowRoot(peer);
      this.#noteDivergence();
    },
    peer_stopped: ({ peer: name }) => {
      const peer = this.#peer(name);
      if (peer === undefined || !peer.running) return false;
      this.#endEdges(name);
      this.#forgetRoot(peer);
      this.#noteDivergence();
      peer.running = false;
    },
    connected: ({ peer, other }) => {
      const edge = this.#edge(peer, other);
      if (edge === undefined || edge.connected) return false;
      edge.connected = true;
    },
    disconnected: ({ peer, other }) => this.#endEdge(peer, other),
    link_changed: ({ peer, other, link }) => {
      const edge = this.#edge(peer, other);
      if (edge === undefined) return;
      edge.links[edge.peers[0] === peer ? 0 : 1] = link;
      if (!edge.connected && edge.links.every((each) => each === "none")) this.#endEdge(peer, other);
      this.structure++;
    },
    published: () => this.totals.published++,
    committed: ({ peer: name, messages, root, heads, clock }) => {
      const peer = this.#peer(name);
      if (peer === undefined) return;
      if (peer.root !== root) {
        this.#forgetRoot(peer);
        peer.root = root;
        this.#knowRoot(peer);
        this.#noteDivergence();
      }
      Object.assign(peer, { messages, heads, clock });
    },
    delivered: ({ by, latency }) => {
      this.totals[by]++;
      if (latency !== null && this.latencies.length < MOST_LATENCIES) this.latencies.push(latency);
    },
    duplicated: () => this.totals.duplicated++,
    sync_ended: () => this.totals.syncs++,
    refused: () => this.totals.refused++,
    traffic_counted: ({ peer: name, bytes_sent, bytes_received }) => {
      const peer = this.#peer(name);
      if (peer === undefined) return;
      this.bytes += bytes_sent - (bytes_sent >= peer.bytes_sent ? peer.bytes_sent : 0);
      Object.assign(peer, { bytes_sent, bytes_received });
    },
    partitioned: ({ groups }) => (this.groups = groups),
    healed: () => (this.groups = null),
    rate_changed: ({ rate }) => (this.rate = rate),
  };

  #peer(name, label = name, kind = "peer", agent = "") {
    let peer = this.peers.get(name);
    if (peer === undefined && this.peers.size < MOST_PEERS) {
      peer = {
        label,
        kind,
        agent,
        running: true,
        messages: 0,
        root: "",
        heads: [],
        clock: 0,
        bytes_sent: 0,
        bytes_received: 0,
      };
      this.peers.set(name, peer);
      this.others.set(name, new Set());
      this.structure++;
    }
    if (peer === undefined) this.totals.omitted++;
    return peer;
  }

  #edge(peer, other) {
    const key = pairKey(peer, other);
    let edge = this.edges.get(key);
    if (edge === undefined) {
      if (peer === other || this.edges.size >= MOST_EDGES) {
        this.totals.omitted++;
        return undefined;
      }
      if (this.#peer(peer) === undefined || this.#peer(other) === undefined) return undefined;
      edge = { peers: peer < other ? [peer, other] : [other, peer], connected: false, links: ["none", "none"] };
      this.edges.set(key, edge);
      this.others.get(peer).add(other);
      this.others.get(other).add(peer);
      this.structure++;
    }
    return edge;
  }

  #endEdges(peer) {
    for (const other of [...this.others.get(peer)]) this.#endEdge(peer, other);
  }

  #endEdge(peer, other) {
    if (!this.edges.delete(pairKey(peer, other))) return false;
    this.others.get(peer).delete(other);
    this.others.get(other).delete(peer);
    this.structure++;
    return true;
  }

  #counts(peer) {
    return peer.running && peer.root !== "" && peer.kind !== "bootstrap";
  }

  #knowRoot(peer) {
    if (this.#counts(peer)) this.roots.set(peer.root, (this.roots.get(peer.root) ?? 0) + 1);
  }

  #forgetRoot(peer) {
    if (!this.#counts(peer)) return;
    const left = this.roots.get(peer.root) - 1;
    if (left === 0) this.roots.delete(peer.root);
    else this.roots.set(peer.root, left);
  }

  #noteDivergence() {
    if (this.roots.size <= 1) this.diverged = null;
    else this.diverged ??= this.now;
  }

  #sampleUntil(at) {
    this.#sample(this.due);
    const last = Math.floor(at / this.interval) * this.interval;
    if (last > this.due) this.#sample(last);
    this.due = last + this.interval;
  }

  #sample(at) {
    this.samples.push(this.sampleAt(at));
    this.latencies = [];
    if (this.samples.length > MOST_SAMPLES) {
      this.samples = this.samples.filter((_, index) => index % 2 === 1);
      this.interval *= 2;
    }
  }

  // What a sample would say at a time: at, messages, roots, lag, latency_p50, latency_p95, bytes.
  sampleAt(at) {
    const latencies = [...this.latencies].sort((first, second) => first - second);
    let messages = 0;
    for (const peer of this.peers.values()) messages = Math.max(messages, peer.messages);
    return [
      at,
      messages,
      this.roots.size,
      this.diverged === null ? 0 : Math.max(at - this.diverged, 0),
      latencies[latencies.length >> 1] ?? null,
      latencies[Math.floor((latencies.length * 19) / 20)] ?? null,
      this.bytes,
    ];
  }
}
