// Data that is asked for again every few seconds, quietly: what is shown stays until there is something newer.
import { useCallback, useEffect, useRef, useState } from "./preact.js";
import { get } from "./api.js";
import { href } from "./router.js";

const KEPT = 60;
// The last answers, so that going back shows a page at once and at its full height.
const answers = new Map();

function remember(key, data) {
  answers.delete(key);
  answers.set(key, data);
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
}

/** Forget kept answers below a path of the API after something there was changed. */
export function forget(path) {
  for (const key of answers.keys()) if (key.startsWith(path)) answers.delete(key);
}

/**
 * {data, error, at, refresh} of a path of the API; a null path asks nothing. Every `every` ms again while the window is seen.
 * With `keep`, data of the path before stays until the new one has answered, as a table does when it is sorted.
 */
export function useLive(path, query = {}, { every = 3000, keep = false } = {}) {
  const key = path === null ? null : href(path, query);
  const [state, setState] = useState(() => ({ key, data: answers.get(key) ?? null, error: null, at: null }));
  const askAgain = useRef(() => {});
  useEffect(() => {
    if (key === null) return undefined;
    const control = new AbortController();
    let timer = 0;
    let asking = false;
    const ask = async () => {
      clearTimeout(timer);
      if (asking) return;
      asking = true;
      try {
        const data = await get(path, query, control.signal);
        remember(key, data);
        setState({ key, data, error: null, at: Date.now() });
      } catch (error) {
        if (control.signal.aborted) return;
        setState((old) => ({ key, data: old.key === key || keep ? old.data : null, error, at: old.at }));
      } finally {
        asking = false;
        if (!control.signal.aborted && every && !document.hidden) timer = setTimeout(ask, every);
      }
    };
    const seen = () => {
      if (!document.hidden) ask();
    };
    askAgain.current = ask;
    ask();
    document.addEventListener("visibilitychange", seen);
    return () => {
      control.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [key, every]);
  const refresh = useCallback(() => askAgain.current(), []);
  if (state.key === key) return { ...state, refresh };
  // The path has just changed: what was kept of it, or what is on the screen.
  return { key, data: answers.get(key) ?? (keep ? state.data : null), error: null, at: null, refresh };
}

/** A value that follows another only once that has been still for a while. */
export function useSettled(value, delay = 250) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delay);
    return () => clearTimeout(timer);
  }, [value, delay]);
  return settled;
}
