// Data that is asked for again every few seconds, quietly: what is shown stays until there is something newer.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type Address, type AnswerTo, type PathWith, type QueryOf, errorOf, get } from "./api";
import { href, type Query } from "./router";

const KEPT = 60;
// The last answers, so that going back shows a page at once and at its full height.
const answers = new Map<string, unknown>();

function remember(key: string, data: unknown) {
  answers.delete(key);
  answers.set(key, data);
  const [oldest] = answers.keys();
  if (answers.size > KEPT && oldest !== undefined) answers.delete(oldest);
}

/** Forget kept answers below a path of the API after something there was changed. */
export function forget(path: string) {
  for (const key of answers.keys()) if (key.startsWith(path)) answers.delete(key);
}

interface Live<Answer> {
  data: Answer | null;
  error: Error | null;
  refresh: () => void;
}

/** What an address of the API answers, asked for again every `every` ms while the window is seen; 0 asks once. */
export function useLive<P extends PathWith<"get">>(
  address: Address<P>,
  query?: QueryOf<P>,
  { every = 3000 }: { every?: number } = {},
): Live<AnswerTo<P>> {
  type Answer = AnswerTo<P>;
  const key = href(address, query as Query | undefined);
  const kept = (answers.get(key) ?? null) as Answer | null;
  const [state, setState] = useState<{ key: string; data: Answer | null; error: Error | null }>({ key, data: kept, error: null });
  const askAgain = useRef<() => void>(() => {});
  useEffect(() => {
    const control = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let asking = false;
    const ask = async () => {
      clearTimeout(timer);
      if (asking) return;
      asking = true;
      try {
        const data = await get(address, query, { signal: control.signal });
        remember(key, data);
        setState({ key, data, error: null });
      } catch (error) {
        if (control.signal.aborted) return;
        setState((old) => ({ key, data: old.key === key ? old.data : null, error: errorOf(error) }));
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
  if (state.key === key) return { data: state.data, error: state.error, refresh };
  // The address has just changed: show what was kept of it.
  return { data: kept, error: null, refresh };
}

/** A value that follows another only once that has been still for a while. */
export function useSettled<Value>(value: Value, delay = 250): Value {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delay);
    return () => clearTimeout(timer);
  }, [value, delay]);
  return settled;
}
