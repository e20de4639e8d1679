// Charts of the history that the node keeps in memory, drawn by uPlot, which is loaded with the first of them.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { get } from "./api.js";
import { clockOf, dateOf } from "./format.js";
import { Failure, Segments } from "./parts.js";
import { href, setQuery } from "./router.js";

const HEIGHT = 190;
// A little less than each ring of the node holds, so that it answers in the steps of that ring.
export const RANGES = {
  "10m": { span: 590e3, text: "10 min", every: 3000, points: 600 },
  "1h": { span: 3600e3, text: "1 h", every: 10000, points: 360 },
  "6h": { span: 21500e3, text: "6 h", every: 15000, points: 360 },
  "2d": { span: 172700e3, text: "2 days", every: 60000, points: 480 },
};
// A node that has just started is not shown as a sliver at the edge: the axis begins with its first point, if that is this old.
const SHORTEST_S = 60;

export const RangeChoice = ({ value }) =>
  html`<${Segments}
    label="How far back"
    value=${value}
    onChoose=${(range) => setQuery({ range: range === "10m" ? null : range }, { replace: false })}
    options=${Object.entries(RANGES).map(([key, { text }]) => [key, text])}
  />`;

let loading = null;
function library() {
  loading ??= import("uplot").then((module) => module.default);
  return loading;
}

/** One chart's questions, merged into one table: times in seconds, then a column for each line. */
async function ask(lines, { span, points }, signal) {
  const to = Date.now();
  const answers = await Promise.all(lines.map(({ query }) => get("/history", { ...query, from: to - span, to, points }, signal)));
  const columns = answers.flatMap(({ times, series }, index) => {
    const entries = Object.entries(series);
    return entries.map(([label, values]) => ({
      label: entries.length > 1 || !lines[index].label ? label : lines[index].label,
      times,
      values,
    }));
  });
  const times = [...new Set(columns.flatMap((column) => column.times))].sort((a, b) => a - b);
  const at = new Map(times.map((time, index) => [time, index]));
  const merged = columns.map((column) => {
    const values = new Array(times.length).fill(null);
    column.times.forEach((time, index) => {
      values[at.get(time)] = column.values[index];
    });
    return values;
  });
  return {
    labels: columns.map(({ label }) => label),
    data: [times.map((time) => time / 1000), ...merged],
    from: Math.min(to / 1000 - SHORTEST_S, Math.max(to - span, times[0] ?? 0) / 1000),
    to: to / 1000,
  };
}

function useHistory(lines, range) {
  const key = JSON.stringify([lines.map(({ query, label }) => href(label ?? "", query)), range.span]);
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
      if (!control.signal.aborted) timer = setTimeout(tick, range.every);
    };
    tick();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [key]);
  return state;
}

// Steps that are round in their unit: an axis of bytes or of times does not count in tens.
const BINARY = Array.from({ length: 60 }, (_, power) => 2 ** power);
const TIMES = [
  0.001,
  0.002,
  0.005,
  0.01,
  0.02,
  0.05,
  0.1,
  0.2,
  0.5,
  1,
  2,
  5,
  10,
  20,
  30,
  60,
  120,
  300,
  600,
  900,
  1800,
  3600,
  7200,
  14400,
  21600,
  43200,
  ...Array.from({ length: 12 }, (_, power) => 86400 * 2 ** power),
];
const STEPS = { bytes: BINARY, seconds: TIMES, ms: TIMES.map((step) => step * 1000) };

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options({ labels, format, unit, width, onMove, scale }) {
  const axis = {
    stroke: color("--text-3"),
    grid: { stroke: color("--chart-grid"), width: 1 },
    ticks: { show: false },
    font: "11px Inter, system-ui, sans-serif",
  };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 10, 0, 0],
    cursor: { y: false, points: { size: 7 } },
    scales: {
      x: { time: true, range: () => [scale.current.from, scale.current.to] },
      y: { range: (_, low, high) => [0, high > 0 ? high * 1.12 : 1] },
    },
    axes: [
      {
        ...axis,
        space: 70,
        size: 28,
        values: (_, ticks, __, ___, step) =>
          ticks.map((tick) =>
            step >= 43200 ? dateOf(new Date(tick * 1000)).slice(5) : clockOf(new Date(tick * 1000)).slice(0, step < 60 ? 8 : 5),
          ),
      },
      {
        ...axis,
        size: 78,
        space: 36,
        ...(STEPS[unit] ? { incrs: STEPS[unit] } : {}),
        values: (_, ticks) => ticks.map((tick) => format(tick)),
      },
    ],
    series: [
      {},
      ...labels.map((label, index) => ({
        label,
        stroke: color(`--chart-${(index % 4) + 1}`),
        width: 1.8,
        points: { show: false },
        spanGaps: true,
        fill: labels.length === 1 ? `${color("--chart-1")}1f` : undefined,
      })),
    ],
    hooks: { setCursor: [(plot) => onMove(plot.cursor.idx ?? null)] },
  };
}

/** `lines` are [{query: {metric, …}, label}]; `format` writes a value; `unit` (bytes, seconds, ms) chooses round steps. The last values, or those under the pointer, stand in the head. */
export const HistoryChart = ({
  title,
  lines,
  format,
  unit,
  range = "10m",
  none = "Nothing was measured yet; points appear within seconds.",
}) => {
  const chosen = RANGES[range] ?? RANGES["10m"];
  const { drawn, error } = useHistory(lines, chosen);
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
      plot.current = new uPlot(
        options({ labels: drawn.labels, format, unit, width: box.current.clientWidth, onMove: setIndex, scale }),
        drawn.data,
        box.current,
      );
      watcher = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth, height: HEIGHT }));
      watcher.observe(box.current);
    });
    return () => {
      stopped = true;
      watcher?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, theme]);
  useEffect(() => {
    if (drawn && plot.current) {
      scale.current = drawn;
      plot.current.setData(drawn.data);
    }
  }, [drawn]);
  const last = drawn ? drawn.data[0].length - 1 : -1;
  const at = index ?? last;
  const hasPoints = drawn && drawn.labels.length > 0 && last >= 0;
  const told = hasPoints
    ? drawn.labels.map((label, number) => `${label} ${format(drawn.data[number + 1][last])}`).join(", ")
    : "no points yet";
  return html`<section class="card chart" aria-label=${title}>
    <div class="chart-head">
      <h2>${title}</h2>
      <div class="chart-key">
        ${hasPoints && drawn.labels.map((label, number) => html`<span key=${label}><i style=${{ background: `var(--chart-${(number % 4) + 1})` }}></i>${label} <b>${format(drawn.data[number + 1][at])}</b></span>`)}
      </div>
    </div>
    <div class="chart-body">
      <div ref=${box} role="img" aria-label=${`${title}, last ${chosen.text}: ${told}`} style=${{ height: `${HEIGHT}px` }}></div>
    </div>
    ${error && !hasPoints ? html`<div class="chart-none"><${Failure} error=${error} what="The history" /></div>` : drawn && !hasPoints && html`<div class="chart-none">${none}</div>`}
  </section>`;
};
