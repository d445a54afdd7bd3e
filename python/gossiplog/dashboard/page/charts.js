// What has happened over time, as small charts of one size: a figure of now, and a line of all that was.

import { bytesText } from "./texts.js";

const WIDTH = 240;
const HEIGHT = 38;
// The fields of a sample, as state.py has them.
const [AT, MESSAGES, ROOTS, LAG, P50, P95, BYTES] = [0, 1, 2, 3, 4, 5, 6];

const seconds = (value) => (value >= 100 ? `${Math.round(value)} s` : `${value.toFixed(1)} s`);
const milliseconds = (value) => {
  const found = value * 1000;
  if (found >= 1000) return seconds(value);
  return found >= 10 ? `${Math.round(found)} ms` : `${found.toPrecision(2)} ms`;
};
const latest = (samples, field) => samples.findLast((sample) => sample[field] !== null)?.[field];

// For each chart: its name, the figure beside it, and its lines as lists of [time, value].
const CHARTS = [
  {
    name: "messages",
    figure: (samples) => samples.at(-1)[MESSAGES].toLocaleString("en"),
    lines: (samples) => [samples.map((sample) => [sample[AT], sample[MESSAGES]])],
  },
  {
    name: "distinct roots",
    least: 1,
    figure: (samples) => String(samples.at(-1)[ROOTS]),
    lines: (samples) => [samples.map((sample) => [sample[AT], sample[ROOTS]])],
  },
  {
    name: "convergence lag",
    figure: (samples) => seconds(samples.at(-1)[LAG]),
    lines: (samples) => [samples.map((sample) => [sample[AT], sample[LAG]])],
  },
  {
    name: "delivery, p50 · p95",
    figure: (samples) => {
      const [half, most] = [latest(samples, P50), latest(samples, P95)];
      return half === undefined ? "–" : `${milliseconds(half)} · ${milliseconds(most)}`;
    },
    lines: (samples) =>
      [P50, P95].map((field) =>
        samples.filter((sample) => sample[field] !== null).map((sample) => [sample[AT], sample[field]]),
      ),
  },
  {
    name: "bytes sent",
    more: (samples) => `, ${bytesText(samples.at(-1)[BYTES])} in all`,
    figure: (samples) => {
      const [from, to] = [samples.at(-5) ?? samples[0], samples.at(-1)];
      const rate = (to[BYTES] - from[BYTES]) / Math.max(to[AT] - from[AT], 0.001);
      return `${bytesText(Math.max(rate, 0))}/s`;
    },
    lines: (samples) => [
      samples.slice(1).map((sample, index) => {
        const before = samples[index];
        return [sample[AT], Math.max(0, sample[BYTES] - before[BYTES]) / Math.max(sample[AT] - before[AT], 0.001)];
      }),
    ],
  },
];

export class Charts {
  #charts;

  constructor(element) {
    this.#charts = CHARTS.map((chart) => {
      const figure = d3.select(element).append("figure").attr("class", "chart");
      const caption = figure.append("figcaption");
      const text = caption.append("b");
      const label = caption.append("span").text(chart.name);
      const svg = figure
        .append("svg")
        .attr("viewBox", `0 0 ${WIDTH} ${HEIGHT}`)
        .attr("preserveAspectRatio", "none")
        .attr("role", "img")
        .attr("aria-label", chart.name);
      svg.append("path").attr("class", "base").attr("d", `M0 ${HEIGHT}H${WIDTH}`);
      return {
        ...chart,
        text,
        label,
        area: svg.append("path").attr("class", "area"),
        paths: ["line", "second"].map((kind) => svg.append("path").attr("class", kind)),
      };
    });
  }

  // Draw the samples of a state, and one of now.
  update(state, now) {
    const samples = [...state.samples, state.sampleAt(Math.max(now, state.now))];
    const x = d3.scaleLinear([Math.min(samples[0][AT], now), Math.max(now, samples.at(-1)[AT], 1)], [0, WIDTH]);
    for (const { name, figure, more, lines, least = 0, text, label, area, paths } of this.#charts) {
      text.text(figure(samples));
      if (more !== undefined) label.text(name + more(samples));
      const found = lines(samples);
      const most = d3.max(found.flat(), ([, value]) => value) ?? 0;
      const y = d3.scaleLinear([0, Math.max(most, least, 1e-9) * 1.08], [HEIGHT, 2]);
      const line = d3
        .line(
          ([at]) => x(at).toFixed(1),
          ([, value]) => y(value).toFixed(1),
        )
        .curve(d3.curveMonotoneX);
      paths.forEach((path, index) => path.attr("d", found[index]?.length > 1 ? line(found[index]) : null));
      const filled = d3
        .area(
          ([at]) => x(at).toFixed(1),
          HEIGHT,
          ([, value]) => y(value).toFixed(1),
        )
        .curve(d3.curveMonotoneX);
      area.attr("d", found[0].length > 1 ? filled(found[0]) : null);
    }
  }
}
