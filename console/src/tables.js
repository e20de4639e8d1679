// Tables: a plain one for what fits on a page, and one of any length that holds only the rows in sight.
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { get } from "./api.js";
import { integer, plural } from "./format.js";
import { Icon } from "./icons.js";
import { Bone, Failure } from "./parts.js";
import { href, setQuery, useLocation } from "./router.js";

const ROW = 42;
const PAGE = 100;
const AHEAD = 8;

// `wide` is true for columns that a phone does without, "widest" for those that only a large window has room for.
const classOf = ({ end, wide }) => `${end ? "end" : ""} ${wide === "widest" ? "widest-only" : wide ? "wide-only" : ""}`;

/** Heads of columns {key, title, end, wide, width, sorts, about}; those that sort do it by the query of the URL. */
const Heads = ({ columns, sort, order }) => {
  const turn = (key, numeric) => {
    const next = sort === key ? (order === "asc" ? "desc" : "asc") : numeric ? "desc" : "asc";
    setQuery({ sort: key, order: next, at: null }, { replace: false });
  };
  return html`<thead>
    <tr>
      ${columns.map(
        (column) =>
          html`<th
            key=${column.key}
            scope="col"
            class=${classOf(column)}
            style=${{ width: column.width ?? null }}
            title=${column.about}
            aria-sort=${column.sorts && sort === column.key ? (order === "asc" ? "ascending" : "descending") : null}
          >
            ${
              column.sorts
                ? html`<button type="button" class="sorter" onClick=${() => turn(column.key, column.end)}>
                    ${column.title}<${Icon} name="down" />
                  </button>`
                : column.title || html`<span class="spoken">${column.spoken ?? "Actions"}</span>`
            }
          </th>`,
      )}
    </tr>
  </thead>`;
};

const Cells = ({ columns, row }) =>
  columns.map(
    (column) => html`<td key=${column.key} class=${classOf(column)}>${column.show ? column.show(row) : row[column.key]}</td>`,
  );

/** A table of rows that are all there. Heads of columns with `sorts` sort it here, at first as `start` says: [key, order]. */
export const Table = ({ label, columns, rows, keyOf, start, tall }) => {
  const { query } = useLocation();
  const sorting = query.sort
    ? { sort: query.sort, order: query.order ?? "asc" }
    : { sort: start?.[0] ?? null, order: start?.[1] ?? "asc" };
  const sorter = columns.find(({ key, sorts }) => sorts && key === sorting.sort);
  const valueOf = (row) => (typeof sorter.sorts === "function" ? sorter.sorts(row) : row[sorter.key]) ?? -Infinity;
  const sign = sorting.order === "asc" ? 1 : -1;
  const shown = sorter ? [...rows].sort((a, b) => sign * (valueOf(a) < valueOf(b) ? -1 : valueOf(a) > valueOf(b) ? 1 : 0)) : rows;
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label=${label}>
    <table class=${`table ${tall ? "tall" : ""}`}>
      <caption class="spoken">
        ${label}
      </caption>
      <${Heads} columns=${columns} ...${sorting} />
      <tbody>
        ${shown.map(
          (row) =>
            html`<tr class="data" key=${keyOf(row)}>
              <${Cells} columns=${columns} row=${row} />
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
};

/** Rows of a list of the API, page by page: those in sight are asked for, and asked for again every few seconds. */
function useRows(path, query, every) {
  const key = href(path, query);
  const held = useRef({ key: null, pages: new Map(), total: null, sight: [0, 0] });
  const [state, setState] = useState({ version: 0, error: null });
  const load = useCallback(
    async (number, signal) => {
      const store = held.current;
      try {
        const answer = await get(path, { ...query, offset: number * PAGE, limit: PAGE }, signal);
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
        if (!signal.aborted) setState((old) => ({ version: old.version + 1, error }));
      }
    },
    [key],
  );
  const ask = useRef(() => {});
  useEffect(() => {
    const control = new AbortController();
    const underWay = new Set();
    let timer = 0;
    const askFor = async (again) => {
      const [first, last] = held.current.sight;
      const wanted = [];
      for (let number = Math.floor(first / PAGE); number <= Math.floor(Math.max(first, last - 1) / PAGE); number += 1) {
        if (underWay.has(number) || (!again && held.current.key === key && held.current.pages.has(number))) continue;
        underWay.add(number);
        wanted.push(load(number, control.signal).finally(() => underWay.delete(number)));
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
  const rowAt = (index) => held.current.pages.get(Math.floor(index / PAGE))?.[index % PAGE] ?? null;
  const look = (first, last) => {
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

/**
 * A table of any length. It fills the height it is given and scrolls in it; the first row in sight is `at` in the URL.
 * `empty` is shown when the list has nothing in it.
 */
export const LongTable = ({
  label,
  columns,
  path,
  query,
  sort,
  order,
  at,
  keyOf,
  empty,
  every = 3000,
  noun = "row",
  refreshRef,
}) => {
  const rows = useRows(path, { ...query, sort, order }, every);
  const scroller = useRef(null);
  const [sight, setSight] = useState([0, 30]);
  if (refreshRef) refreshRef.current = rows.refresh;
  const place = useRef(Number(at) || 0);
  const settle = useRef(0);
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
  if (known && rows.total === 0 && rows.isCurrent) return html`<div class="card">${empty}</div>`;
  const total = rows.total ?? 12;
  const [first, last] = [Math.min(sight[0], Math.max(0, total - 1)), Math.min(sight[1], total)];
  const shown = Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
  return html`<div class="card virtual">
    ${rows.error && html`<${Failure} error=${rows.error} again=${rows.refresh} what="The list" />`}
    <div class="table-scroll" ref=${scroller} onScroll=${scrolled} tabindex="0" role="region" aria-label=${label}>
      <table class="table" aria-rowcount=${known ? total + 1 : -1} aria-busy=${String(!rows.isCurrent)}>
        <caption class="spoken">
          ${label}
        </caption>
        <${Heads} columns=${columns} sort=${sort} order=${order} />
        <tbody>
          <tr class="space" aria-hidden="true">
            <td colspan=${columns.length} style=${{ height: `${first * ROW}px` }}></td>
          </tr>
          ${shown.map((index) => {
            const row = rows.rowAt(index);
            return row
              ? html`<tr class="data" key=${keyOf(row)} aria-rowindex=${index + 2}>
                  <${Cells} columns=${columns} row=${row} />
                </tr>`
              : html`<tr class="data" key=${`bone${index}`} aria-rowindex=${index + 2}>
                  ${columns.map((column) => html`<td key=${column.key} class=${classOf(column)}><${Bone} /></td>`)}
                </tr>`;
          })}
          <tr class="space" aria-hidden="true">
            <td colspan=${columns.length} style=${{ height: `${Math.max(0, total - last) * ROW}px` }}></td>
          </tr>
        </tbody>
      </table>
    </div>
    <div class="table-foot">
      <span>${known ? plural(total, noun) : "Loading…"}</span>
      ${known && total > 20 && html`<span class="wide-only">rows ${integer(Math.min(total, Math.round(first + (first ? AHEAD : 0) + 1)))}–${integer(Math.min(total, Math.max(last - AHEAD, 1)))} in sight</span>`}
      <span class="push wide-only">Arrows move, Enter opens</span>
    </div>
  </div>`;
};
