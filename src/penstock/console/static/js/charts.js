// Charts of the history that the node keeps in memory, drawn by uPlot, which is loaded with the first of them.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/htm-preact.js";
import { get } from "./api.js";
import { clockOf, dateOf } from "./format.js";
import { Failure, Segments } from "./parts.js";
import { href, setQuery } from "./router.js";

const HEIGHT = 190;
const POINTS = 240;
export const RANGES = { "10m": [600e3, "10 min", 3000], "1h": [3600e3, "1 h", 10000], "6h": [21600e3, "6 h", 15000], "2d": [172800e3, "2 days", 60000] };

export const RangeChoice = ({ value }) => html`<${Segments} label="How far back" value=${value} onChoose=${(range) => setQuery({ range: range === "10m" ? null : range }, { replace: false })}
  options=${Object.entries(RANGES).map(([key, [, text]]) => [key, text])} />`;

let loading = null;
function library() {
  loading ??= import("../vendor/uplot.js").then((module) => {
    const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("../vendor/uplot.css", import.meta.url).href });
    document.head.append(sheet);
    return module.default;
  });
  return loading;
}

/** One chart's questions, merged into one table: times in seconds, then a column for each line. */
async function ask(lines, range, signal) {
  const to = Date.now();
  const answers = await Promise.all(lines.map(({ query }) => get("/history", { ...query, from: to - range, to, points: POINTS }, signal)));
  const columns = answers.flatMap(({ times, series }, index) => {
    const entries = Object.entries(series);
    return entries.map(([label, values]) => ({ label: entries.length > 1 || !lines[index].label ? label : lines[index].label, times, values }));
  });
  const times = [...new Set(columns.flatMap((column) => column.times))].sort((a, b) => a - b);
  const at = new Map(times.map((time, index) => [time, index]));
  const merged = columns.map((column) => {
    const values = new Array(times.length).fill(null);
    column.times.forEach((time, index) => { values[at.get(time)] = column.values[index]; });
    return values;
  });
  return { labels: columns.map(({ label }) => label), data: [times.map((time) => time / 1000), ...merged], from: (to - range) / 1000, to: to / 1000 };
}

function useHistory(lines, range, every) {
  const key = JSON.stringify([lines.map(({ query, label }) => href(label ?? "", query)), range]);
  const [state, setState] = useState({ key: null, drawn: null, error: null });
  useEffect(() => {
    const control = new AbortController();
    let timer = 0;
    const tick = async () => {
      try {
        if (!document.hidden) setState({ key, drawn: await ask(lines, range, control.signal), error: null });
      } catch (error) {
        if (!control.signal.aborted) setState((old) => ({ ...old, error }));
      }
      if (!control.signal.aborted) timer = setTimeout(tick, every);
    };
    tick();
    return () => { control.abort(); clearTimeout(timer); };
  }, [key, every]);
  return state;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(uPlot, labels, format, width, onMove, scale) {
  const axis = { stroke: color("--text-3"), grid: { stroke: color("--chart-grid"), width: 1 }, ticks: { show: false }, font: "11px Inter, system-ui, sans-serif" };
  return {
    width, height: HEIGHT, legend: { show: false }, padding: [8, 10, 0, 0],
    cursor: { y: false, points: { size: 7 } },
    scales: { x: { time: true, range: () => [scale.current.from, scale.current.to] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.12 : 1] } },
    axes: [
      { ...axis, space: 70, values: (_, ticks, __, ___, step) => ticks.map((tick) => (step >= 43200 ? dateOf(new Date(tick * 1000)).slice(5) : clockOf(new Date(tick * 1000)).slice(0, step < 60 ? 8 : 5))) },
      { ...axis, size: 72, space: 36, values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [{}, ...labels.map((label, index) => ({
      label, stroke: color(`--chart-${(index % 4) + 1}`), width: 1.8, points: { show: false }, spanGaps: true,
      fill: labels.length === 1 ? `${color("--chart-1")}1f` : undefined,
    }))],
    hooks: { setCursor: [(plot) => onMove(plot.cursor.idx ?? null)] },
  };
}

/** `lines` are [{query: {metric, …}, label}]; `format` writes a value. The last values, or those under the pointer, stand in the head. */
export const HistoryChart = ({ title, lines, format, range = "10m", none = "Nothing was measured yet; points appear within seconds." }) => {
  const [span, rangeText, every] = RANGES[range] ?? RANGES["10m"];
  const { drawn, error } = useHistory(lines, span, every);
  const box = useRef(null);
  const plot = useRef(null);
  const scale = useRef({ from: 0, to: 1 });
  const [index, setIndex] = useState(null);
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    const changed = () => setTheme((old) => old + 1);
    addEventListener("penstock-theme", changed);
    return () => removeEventListener("penstock-theme", changed);
  }, []);
  const shape = drawn ? JSON.stringify(drawn.labels) : null;
  useLayoutEffect(() => {
    if (!shape) return undefined;
    let stopped = false;
    let watcher = null;
    library().then((uPlot) => {
      if (stopped || !box.current) return;
      scale.current = drawn;
      plot.current = new uPlot(options(uPlot, drawn.labels, format, box.current.clientWidth, setIndex, scale), drawn.data, box.current);
      watcher = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth, height: HEIGHT }));
      watcher.observe(box.current);
    });
    return () => { stopped = true; watcher?.disconnect(); plot.current?.destroy(); plot.current = null; };
  }, [shape, theme]);
  useEffect(() => {
    if (drawn && plot.current) { scale.current = drawn; plot.current.setData(drawn.data); }
  }, [drawn]);
  const last = drawn ? drawn.data[0].length - 1 : -1;
  const at = index ?? last;
  const hasPoints = drawn && drawn.labels.length > 0 && last >= 0;
  const told = hasPoints ? drawn.labels.map((label, number) => `${label} ${format(drawn.data[number + 1][last])}`).join(", ") : "no points yet";
  return html`<section class="card chart" aria-label=${title}>
    <div class="chart-head"><h2>${title}</h2><div class="chart-key">
      ${hasPoints && drawn.labels.map((label, number) => html`<span key=${label}><i style=${{ background: `var(--chart-${(number % 4) + 1})` }}></i>${label} <b>${format(drawn.data[number + 1][at])}</b></span>`)}
    </div></div>
    <div class="chart-body"><div ref=${box} role="img" aria-label=${`${title}, last ${rangeText}: ${told}`} style=${{ height: `${HEIGHT}px` }}></div></div>
    ${error && !hasPoints ? html`<div class="chart-none"><${Failure} error=${error} what="The history" /></div>` : drawn && !hasPoints && html`<div class="chart-none">${none}</div>`}
  </section>`;
};
