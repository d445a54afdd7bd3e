// Joins the parts: where events come from, the state that follows from them, and what shows it. One loop draws, only
// while something moves or has changed; the panels, which are read, follow a few times a second.

import { onTheme } from "./colours.js";
import { Charts } from "./charts.js";
import { complain, Controls } from "./controls.js";
import { Drawing } from "./drawing.js";
import { Layout } from "./layout.js";
import { follow } from "./live.js";
import { EventLog, timeText } from "./log.js";
import { Player } from "./player.js";
import { Pointing } from "./pointing.js";
import { Pulses } from "./pulses.js";
import { NetworkState } from "./state.js";
import { PeerTable } from "./table.js";
import { connectionText, put } from "./texts.js";
import { Tooltip } from "./tooltip.js";
import { countPeers, verdictOf } from "./verdict.js";

const PANEL_MILLISECONDS = 250;
const CHART_MILLISECONDS = 500;

const element = (id) => document.getElementById(id);

const readAbout = async () => (await fetch("about")).json();
const about = await readAbout();
const state = new NetworkState();
const layout = new Layout();
const pulses = new Pulses();
const drawing = new Drawing(element("network"));
const tooltip = new Tooltip(element("tooltip"));
const controls = new Controls(state, about.commands, (text) => put(element("spoken"), text));
const charts = new Charts(element("chart-list"));
const log = new EventLog({ list: element("log"), kind: element("log-kind"), text: element("log-text"), state });
const actions = {
  activate: (peer) => controls.append(peer),
  toggle: (peer) => controls.toggle(peer),
  cut: (peer, other) => controls.cut(peer, other),
  choose: (peer) => pointing.choose(peer),
  changed: () => {
    table.mark(drawing.chosen.peer);
    wake();
  },
};
const table = new PeerTable(element("rows"), state, actions);
const pointing = new Pointing({
  canvas: element("network"),
  spoken: element("spoken"),
  state,
  layout,
  drawing,
  tooltip,
  actions,
});

let player = null;
let frame = null; // the frame that was asked for
let before = null; // when the last one was drawn
let clock = { at: about.now ?? 0, read: performance.now() };
const drawn = { frames: 0, milliseconds: 0 };

// The network's time: a recording's own, or what the last event says and what has passed since.
const now = () => player?.time ?? clock.at + (performance.now() - clock.read) / 1000;

const wake = () => (frame ??= requestAnimationFrame(draw));

function draw(at) {
  frame = null;
  const begun = performance.now();
  const isPlaying = player?.advance(before === null ? 0 : Math.min((at - before) / 1000, 0.25)) ?? false;
  if (layout.update(state)) drawing.invalidate();
  const isMoving = layout.tick();
  if (isMoving) drawing.invalidate();
  const isTurning = layout.nodes.size > 0 && drawing.fit(layout);
  const isPulsing = pulses.advance(at);
  drawing.frame(state, layout, pulses, at, isMoving || isTurning);
  drawn.frames++;
  drawn.milliseconds += performance.now() - begun;
  const goesOn = isPlaying || isMoving || isTurning || isPulsing;
  before = goesOn ? at : null;
  if (goesOn) wake();
}

const showPanels = () => {
  const { running, all } = countPeers(state);
  let messages = 0;
  for (const peer of state.peers.values()) messages = Math.max(messages, peer.messages);
  element("figure-peers").textContent = running === all ? `${all}` : `${running} of ${all}`;
  element("figure-messages").textContent = messages.toLocaleString("en");
  element("figure-roots").textContent = String(state.roots.size);
  element("figure-roots-name").textContent = state.roots.size === 1 ? "root" : "roots";
  table.update();
  log.update();
  controls.update();
  pointing.refresh();
};

const showVerdict = () => {
  const silence = heard === null ? 0 : (performance.now() - heard) / 1000;
  const { kind, words } = verdictOf(state, silence);
  element("verdict").className = kind;
  put(element("verdict"), words);
};

const changed = (events) => {
  const at = performance.now();
  for (const event of events) {
    pulses.take(event, at);
    log.take(event);
  }
  drawing.invalidate();
  panelsAreStale = true;
  wake();
};
const replaced = (events = state.recent) => {
  pulses.clear();
  log.reset(events);
  drawing.invalidate();
  panelsAreStale = true;
  wake();
};

let panelsAreStale = true;
let heard = null; // when a network that runs has last reported something; null where nobody can know
let firstState = null; // milliseconds from the begin of loading until there was a state
setInterval(() => {
  element("figure-time").textContent = timeText(now());
  showVerdict();
  if (panelsAreStale) showPanels();
  panelsAreStale = false;
}, PANEL_MILLISECONDS);
setInterval(() => charts.update(state, now()), CHART_MILLISECONDS);

new ResizeObserver(() => {
  drawing.resize();
  wake();
}).observe(element("stage"));
onTheme(() => {
  drawing.invalidate();
  table.repaint();
  wake();
});

const showTitle = (title) => {
  put(element("title"), title || "gossiplog");
  document.title = title ? `${title} – gossiplog` : "gossiplog network";
};

// Another network may have begun at the address meanwhile, with a clock and commands of its own.
const renew = async () => {
  try {
    const { title, commands, now: at } = await readAbout();
    showTitle(title);
    controls.allow(commands);
    clock = { at, read: performance.now() };
  } catch {
    // The connection has ended again, and the next one asks again.
  }
};

showTitle(about.title);
if (about.mode === "recording") {
  player = new Player(state, { state: replaced, changes: changed, wake });
  drawing.bottom = element("player").offsetHeight + 14;
  try {
    player.load(await (await fetch("recording")).text());
  } catch (error) {
    complain(`the recording cannot be read: ${error.message}`);
  }
} else
  follow(state, {
    state: () => {
      clock = { at: Math.max(now(), state.now), read: performance.now() };
      heard = performance.now();
      firstState ??= heard;
      replaced();
    },
    changes: (events) => {
      heard = performance.now();
      if (state.now > now()) clock = { at: state.now, read: performance.now() };
      changed(events);
    },
    connection: (isThere, reason) => {
      put(element("connection"), connectionText(isThere, reason));
      heard = isThere ? performance.now() : null;
      if (isThere) renew();
    },
  });

// For tests, and for those who look: what the page knows, and where it draws it.
globalThis.dashboard = {
  ...{ state, layout, drawing, pulses, drawn, player, now },
  get isShown() {
    return !panelsAreStale;
  },
  get isResting() {
    return frame === null;
  },
  get firstState() {
    return firstState;
  },
};
