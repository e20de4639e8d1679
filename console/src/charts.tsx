// Charts of the history that the node keeps in memory, drawn by uPlot, which is loaded with the first of them.
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { type QueryOf, apiPath, errorOf, get } from "./api";
import { type Figure, clockOf, dateOf } from "./format";
import { Failure, Segments } from "./parts";
import { href, setQuery } from "./router";

const HEIGHT = 190;
interface Range {
  span: number;
  text: string;
  every: number;
  points: number;
}

// A little less than each ring of the node holds, so that it answers in the steps of that ring.
const RANGES = {
  "10m": { span: 590e3, text: "10 min", every: 3000, points: 600 },
  "1h": { span: 3600e3, text: "1 h", every: 10000, points: 360 },
  "6h": { span: 21500e3, text: "6 h", every: 15000, points: 360 },
  "2d": { span: 172700e3, text: "2 days", every: 60000, points: 480 },
} satisfies Record<string, Range>;
const isRange = (key: string): key is keyof typeof RANGES => Object.hasOwn(RANGES, key);
// A node that has just started is not shown as a sliver at the edge: the axis begins with its first point, if that is this old.
const SHORTEST_S = 60;

export const RangeChoice = ({ value }: { value: string }) => (
  <Segments
    label="How far back"
    value={value}
    onChoose={(range) => setQuery({ range: range === "10m" ? null : range }, { replace: false })}
    options={Object.entries(RANGES).map(([key, { text }]) => [key, text])}
  />
);

let loading: Promise<typeof uPlot> | null = null;
function library(): Promise<typeof uPlot> {
  loading ??= import("uplot").then(
    (module) => module.default,
    (error: unknown) => {
      loading = null; // the next chart asks again
      throw error;
    },
  );
  return loading;
}

/** A line of a chart: what is asked of the history, and what it is called if that is one series. */
export interface Line {
  query: Pick<QueryOf<"/history">, "topic" | "consumer" | "pipeline"> & { metric: NonNullable<QueryOf<"/history">["metric"]> };
  label: string | null;
}

interface ChartData {
  labels: string[];
  data: [times: number[], ...columns: (number | null)[][]];
  from: number;
  to: number;
}

/** One chart's questions, merged into one table: times in seconds, then a column for each line. */
async function ask(lines: Line[], { span, points }: Range, signal: AbortSignal): Promise<ChartData> {
  const to = Date.now();
  const answers = await Promise.all(
    lines.map(({ query }) => get(apiPath("/history"), { ...query, from: to - span, to, points }, { signal })),
  );
  const columns = answers.flatMap(({ times, series }, index) => {
    const entries = Object.entries(series);
    return entries.map(([label, values]) => ({
      label: entries.length > 1 ? label : lines[index]?.label || label,
      times,
      values,
    }));
  });
  const times = [...new Set(columns.flatMap((column) => column.times))].sort((a, b) => a - b);
  const at = new Map(times.map((time, index) => [time, index]));
  const merged = columns.map((column) => {
    const values = new Array<number | null>(times.length).fill(null);
    column.times.forEach((time, index) => {
      values[at.get(time)!] = column.values[index] ?? null;
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

interface HistoryState {
  drawn: ChartData | null;
  error: Error | null;
}

function useHistory(lines: Line[], range: Range): HistoryState {
  const key = JSON.stringify([lines.map(({ query, label }) => href(label ?? "", query)), range.span]);
  const [state, setState] = useState<HistoryState>({ drawn: null, error: null });
  useEffect(() => {
    const control = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const tick = async () => {
      try {
        if (!document.hidden) setState({ drawn: await ask(lines, range, control.signal), error: null });
      } catch (error) {
        if (!control.signal.aborted) setState((old) => ({ ...old, error: errorOf(error) }));
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
const COUNTS = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
export type Unit = "bytes" | "seconds" | "ms" | "count";
const STEPS: Record<Unit, number[]> = { bytes: BINARY, seconds: TIMES, ms: TIMES.map((step) => step * 1000), count: COUNTS };

const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

interface Drawing {
  labels: string[];
  format: (value: Figure) => string;
  unit: Unit | undefined;
  width: number;
  onMove: (index: number | null) => void;
  scale: RefObject<Pick<ChartData, "from" | "to">>;
}

function options({ labels, format, unit, width, onMove, scale }: Drawing): uPlot.Options {
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
    padding: [8, 26, 0, 0], // the last label of the axis reaches beyond the plot
    cursor: { y: false, points: { size: 7 } },
    scales: {
      x: { time: true, range: () => [scale.current?.from ?? 0, scale.current?.to ?? 1] },
      y: { range: (_, __, high) => [0, high > 0 ? high * 1.12 : 1] },
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
        ...(unit ? { incrs: STEPS[unit] } : {}),
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

interface HistoryChartProps {
  title: string;
  lines: Line[];
  format: (value: Figure) => string;
  /** Chooses round steps for the axis; plain numbers have none. */
  unit?: Unit;
  range?: string;
  /** Shown where there is no history. */
  none?: string;
}

/** A chart of some lines. The last values, or those under the pointer, stand in the head. */
export const HistoryChart = ({
  title,
  lines,
  format,
  unit,
  range = "10m",
  none = "Nothing was measured yet; points appear within seconds.",
}: HistoryChartProps) => {
  const chosen = RANGES[isRange(range) ? range : "10m"];
  const { drawn, error } = useHistory(lines, chosen);
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const scale = useRef<Pick<ChartData, "from" | "to">>({ from: 0, to: 1 });
  const [index, setIndex] = useState<number | null>(null);
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    const changed = () => setTheme((old) => old + 1);
    addEventListener("penstock-theme", changed);
    return () => removeEventListener("penstock-theme", changed);
  }, []);
  const shape = drawn ? JSON.stringify(drawn.labels) : null;
  useLayoutEffect(() => {
    if (!drawn) return undefined;
    let stopped = false;
    let watcher: ResizeObserver | null = null;
    library().then((Plot) => {
      const place = box.current;
      if (stopped || !place) return;
      scale.current = drawn;
      plot.current = new Plot(
        options({ labels: drawn.labels, format, unit, width: place.clientWidth, onMove: setIndex, scale }),
        drawn.data,
        place,
      );
      watcher = new ResizeObserver(() => plot.current?.setSize({ width: place.clientWidth, height: HEIGHT }));
      watcher.observe(place);
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
    ? drawn.labels.map((label, number) => `${label} ${format(drawn.data[number + 1]?.[last])}`).join(", ")
    : "no points yet";
  return (
    <section class="card chart" aria-label={title}>
      <div class="chart-head">
        <h2>{title}</h2>
        <div class="chart-key">
          {hasPoints && index !== null && <time class="num muted">{clockOf(new Date((drawn.data[0][index] ?? 0) * 1000))}</time>}
          {hasPoints &&
            drawn.labels.map((label, number) => (
              <span key={label}>
                <i style={{ background: `var(--chart-${(number % 4) + 1})` }} />
                {label} <b>{format(drawn.data[number + 1]?.[at])}</b>
              </span>
            ))}
        </div>
      </div>
      <div class="chart-body">
        <div ref={box} role="img" aria-label={`${title}, last ${chosen.text}: ${told}`} style={{ height: `${HEIGHT}px` }} />
      </div>
      {error && !hasPoints ? (
        <div class="chart-none">
          <Failure error={error} what="The history" />
        </div>
      ) : (
        drawn && !hasPoints && <div class="chart-none">{none}</div>
      )}
    </section>
  );
};
