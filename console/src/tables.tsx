// Tables: a plain one for what fits on a page, and one of any length that holds only the rows in sight.
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { type Address, type AnswerTo, type PathWith, type QueryOf, errorOf, get } from "./api";
import { integer, plural } from "./format";
import { Icon } from "./icons";
import { Bone, Failure } from "./parts";
import { type Query, href, setQuery, useLocation } from "./router";

const ROW = 42;
const PAGE = 100;
const AHEAD = 8;
const REFRESH_MS = 3000;

type Order = "asc" | "desc";

export interface Column<Row> {
  key: string;
  title?: string;
  /** What its head shows in place of the title. */
  head?: ComponentChildren;
  /** Stands at the end of its cell, as figures do. */
  end?: boolean;
  /** True for columns that a phone does without, "wider" and "widest" for those that only larger windows have room for. */
  wide?: boolean | "wider" | "widest";
  width?: string;
  about?: string;
  /** Whether its head sorts: by the field of the same name, or by what is computed. */
  sorts?: boolean | ((row: Row) => unknown);
  show: (row: Row) => ComponentChildren;
}

const classOf = <Row,>({ end, wide }: Column<Row>) =>
  `${end ? "end" : ""} ${wide === true ? "wide-only" : wide ? `${wide}-only` : ""}`;

interface Sorting {
  sort: string | undefined;
  order: string;
}

/** Heads of columns; those that sort do it by the query of the URL. */
const Heads = <Row,>({ columns, sort, order }: { columns: Column<Row>[] } & Sorting) => {
  const turn = (key: string, numeric: boolean | undefined) => {
    const next = sort === key ? (order === "asc" ? "desc" : "asc") : numeric ? "desc" : "asc";
    setQuery({ sort: key, order: next, at: null }, { replace: false });
  };
  return (
    <thead>
      <tr>
        {columns.map((column) => (
          <th
            key={column.key}
            scope="col"
            class={classOf(column)}
            style={{ width: column.width }}
            title={column.about}
            aria-sort={column.sorts && sort === column.key ? (order === "asc" ? "ascending" : "descending") : undefined}
          >
            {column.sorts ? (
              <button type="button" class="sorter" onClick={() => turn(column.key, column.end)}>
                {column.title}
                <Icon name="down" />
              </button>
            ) : (
              (column.head ?? (column.title || <span class="spoken">Actions</span>))
            )}
          </th>
        ))}
      </tr>
    </thead>
  );
};

const Cells = <Row,>({ columns, row }: { columns: Column<Row>[]; row: Row }): ComponentChildren =>
  columns.map((column) => (
    <td key={column.key} class={classOf(column)} data-title={column.title === "Actions" ? undefined : column.title}>
      {column.show(row)}
    </td>
  ));

/** What rows are sorted by; what is not known comes before all. */
type SortValue = string | number;

interface TableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string | number;
  /** How it is sorted at first. */
  start?: [key: string, order: Order];
  /** Rows may be of several lines. */
  tall?: boolean;
  /** Columns have the widths they name, whatever is in them. */
  fixed?: boolean;
}

/** A table of rows that are all there. Heads of columns with `sorts` sort it here. */
export const Table = <Row extends object>({ label, columns, rows, keyOf, start, tall, fixed }: TableProps<Row>) => {
  const { query } = useLocation();
  const sorting: Sorting = query.sort
    ? { sort: query.sort, order: query.order ?? "asc" }
    : { sort: start?.[0], order: start?.[1] ?? "asc" };
  const sorter = columns.find(({ key, sorts }) => sorts && key === sorting.sort);
  const valueOf = (row: Row) => {
    const value = typeof sorter?.sorts === "function" ? sorter.sorts(row) : (row as Record<string, unknown>)[sorting.sort ?? ""];
    return (value ?? -Infinity) as SortValue;
  };
  const sign = sorting.order === "asc" ? 1 : -1;
  const shown = sorter ? [...rows].sort((a, b) => sign * (valueOf(a) < valueOf(b) ? -1 : valueOf(a) > valueOf(b) ? 1 : 0)) : rows;
  return (
    <div class="table-scroll" tabindex={0} role="group" aria-label={label}>
      <table class={`table ${tall ? "tall" : ""} ${fixed ? "fixed" : ""}`}>
        <caption class="spoken">{label}</caption>
        <Heads columns={columns} {...sorting} />
        <tbody>
          {shown.map((row) => (
            <tr class="data" key={keyOf(row)}>
              <Cells columns={columns} row={row} />
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
};

interface ListAnswer<Row> {
  items: Row[];
  total: number;
}

/** The lists of the API that are answered a page at a time. */
type ListPath = {
  [P in PathWith<"get">]: AnswerTo<P> extends ListAnswer<unknown> ? ("limit" extends keyof QueryOf<P> ? P : never) : never;
}[PathWith<"get">];
type RowOf<P extends ListPath> = AnswerTo<P> extends { items: (infer Row)[] } ? Row : never;
type Sight = [first: number, last: number];

interface RowCache<Row> {
  key: string | null;
  pages: Map<number, Row[]>;
  total: number | null;
  sight: Sight;
}

/** Rows of a list of the API, page by page: those in sight are asked for, and asked for again every few seconds. */
function useRows<P extends ListPath>(path: Address<P>, query: Query, every: number) {
  type Row = RowOf<P>;
  const key = href(path, query);
  const held = useRef<RowCache<Row>>({ key: null, pages: new Map(), total: null, sight: [0, 0] });
  const [state, setState] = useState<{ version: number; error: Error | null }>({ version: 0, error: null });
  const load = useCallback(
    async (number: number, signal: AbortSignal) => {
      const store = held.current;
      try {
        // What is sorted by comes from the URL of the page, and is checked by the node.
        const asked = { ...query, offset: number * PAGE, limit: PAGE } as Query as QueryOf<P>;
        const answer = (await get(path, asked, { signal })) as ListAnswer<Row>;
        if (signal.aborted) return;
        // The first answer to a new question takes the place of all that answered the old one.
        if (store.key !== key) {
          store.key = key;
          store.pages = new Map();
        }
        store.pages.set(number, answer.items);
        store.total = answer.total;
        setState((old) => ({ version: old.version + 1, error: null }));
      } catch (error) {
        if (!signal.aborted) setState((old) => ({ version: old.version + 1, error: errorOf(error) }));
      }
    },
    [key],
  );
  const ask = useRef<(again: boolean) => void>(() => {});
  useEffect(() => {
    const control = new AbortController();
    const inFlight = new Set<number>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const askFor = async (again: boolean) => {
      const [first, last] = held.current.sight;
      const wanted: Promise<void>[] = [];
      for (let number = Math.floor(first / PAGE); number <= Math.floor(Math.max(first, last - 1) / PAGE); number += 1) {
        if (inFlight.has(number) || (!again && held.current.key === key && held.current.pages.has(number))) continue;
        inFlight.add(number);
        wanted.push(load(number, control.signal).finally(() => inFlight.delete(number)));
      }
      await Promise.all(wanted);
    };
    const tick = async () => {
      clearTimeout(timer);
      if (!document.hidden) await askFor(true);
      if (!control.signal.aborted) timer = setTimeout(tick, every);
    };
    ask.current = askFor;
    tick();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [key, every]);
  const rowAt = (index: number) => held.current.pages.get(Math.floor(index / PAGE))?.[index % PAGE] ?? null;
  const look = (first: number, last: number) => {
    held.current.sight = [first, last];
    ask.current(false);
  };
  return {
    total: held.current.total,
    rowAt,
    look,
    error: state.error,
    refresh: () => ask.current(true),
    isCurrent: held.current.key === key,
  };
}

interface LongTableProps<P extends ListPath> {
  label: string;
  columns: Column<RowOf<P>>[];
  path: Address<P>;
  query?: Omit<QueryOf<P>, "sort" | "order" | "offset" | "limit">;
  sort?: string;
  order?: string;
  /** The first row in sight, as the URL has it. */
  at: string | undefined;
  keyOf: (row: RowOf<P>) => string | number;
  /** Shown when the list has nothing in it. */
  empty: ComponentChildren;
  noun: string;
  /** How many rows there will be, if that is known before they are: then it is as high as that, up to a limit. */
  expected?: number;
}

/** A table of any length. It fills the height it is given and scrolls in it; the first row in sight is `at` in the URL. */
export const LongTable = <P extends ListPath>({
  label,
  columns,
  path,
  query,
  sort,
  order,
  at,
  keyOf,
  empty,
  noun,
  expected,
}: LongTableProps<P>) => {
  const rows = useRows(path, { ...(query as Query | undefined), sort, order }, REFRESH_MS);
  const scroller = useRef<HTMLDivElement>(null);
  const [sight, setSight] = useState<Sight>([0, 30]);
  const place = useRef(Number(at) || 0);
  const settle = useRef<ReturnType<typeof setTimeout>>();
  const measure = () => {
    const box = scroller.current;
    if (!box) return;
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - AHEAD);
    const last = Math.ceil((box.scrollTop + box.clientHeight) / ROW) + AHEAD;
    setSight((old) => (old[0] === first && old[1] === last ? old : [first, last]));
    rows.look(first, last);
  };
  const scrolled = () => {
    measure();
    clearTimeout(settle.current);
    settle.current = setTimeout(() => {
      const first = Math.round((scroller.current?.scrollTop ?? 0) / ROW);
      place.current = first;
      setQuery({ at: first || null });
    }, 300);
  };
  // Once it is known how long the list is, go where the URL says; after a new question, to its top.
  const known = rows.total !== null;
  useLayoutEffect(() => {
    if (known && scroller.current) {
      scroller.current.scrollTop = place.current * ROW;
      measure();
    }
  }, [known]);
  useLayoutEffect(() => {
    const wanted = Number(at) || 0;
    if (scroller.current && wanted !== place.current) {
      place.current = wanted;
      scroller.current.scrollTop = wanted * ROW;
    }
  }, [at]);
  useEffect(() => {
    const watcher = new ResizeObserver(measure);
    if (scroller.current) watcher.observe(scroller.current);
    return () => {
      watcher.disconnect();
      clearTimeout(settle.current);
    };
  }, [known && rows.total === 0]);
  if (known && rows.total === 0 && rows.isCurrent) return <div class="card">{empty}</div>;
  const total = rows.total ?? expected ?? 12;
  const [first, last] = [Math.min(sight[0], Math.max(0, total - 1)), Math.min(sight[1], total)];
  const shown = Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
  return (
    <div class={`card virtual ${expected === undefined ? "" : "short"}`}>
      {rows.error && <Failure error={rows.error} again={rows.refresh} what="The list" />}
      <div class="table-scroll" ref={scroller} onScroll={scrolled} tabindex={0} role="group" aria-label={label}>
        <table class="table" aria-rowcount={known ? total + 1 : -1} aria-busy={!rows.isCurrent}>
          <caption class="spoken">{label}</caption>
          <Heads columns={columns} sort={sort} order={order ?? "asc"} />
          <tbody>
            <tr class="space" aria-hidden="true">
              <td colspan={columns.length} style={{ height: `${first * ROW}px` }} />
            </tr>
            {shown.map((index) => {
              const row = rows.rowAt(index);
              return row ? (
                <tr class="data" key={keyOf(row)} aria-rowindex={index + 2}>
                  <Cells columns={columns} row={row} />
                </tr>
              ) : (
                <tr class="data" key={`bone${index}`} aria-rowindex={index + 2}>
                  {columns.map((column) => (
                    <td key={column.key} class={classOf(column)}>
                      <Bone />
                    </td>
                  ))}
                </tr>
              );
            })}
            <tr class="space" aria-hidden="true">
              <td colspan={columns.length} style={{ height: `${Math.max(0, total - last) * ROW}px` }} />
            </tr>
          </tbody>
        </table>
      </div>
      <div class="table-foot">
        <span>{known ? plural(total, noun) : "Loading…"}</span>
        {known && total > 20 && (
          <span class="wide-only">
            rows {integer(Math.min(total, Math.round(first + (first ? AHEAD : 0) + 1)))}–
            {integer(Math.min(total, Math.max(last - AHEAD, 1)))} in sight
          </span>
        )}
        <span class="push wide-only">Arrows move, Enter opens</span>
      </div>
    </div>
  );
};
