// Where we are is in the URL and nowhere else: reload, bookmarks and the back button work by themselves.
import { useEffect, useState } from "preact/hooks";

/** Parameters of a URL; empty ones are left out. */
export type Query = Readonly<Record<string, string | number | boolean | null | undefined>>;

export interface Place {
  path: string;
  segments: string[];
  query: Partial<Record<string, string>>;
}

interface Navigation {
  /** Replace the entry of the history, or add one. */
  replace?: boolean;
}

const listeners = new Set<(place: Place) => void>();

function read(): Place {
  const segments = location.pathname
    .split("/")
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
  return { path: location.pathname, segments, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

let current = read();

function announce() {
  current = read();
  for (const listener of listeners) listener(current);
}

/** A path with a query, leaving out what is empty. */
export function href(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/** A path of encoded segments: pathOf("topics", "a/b") is /topics/a%2Fb. */
export const pathOf = (...segments: string[]) => "/" + segments.map(encodeURIComponent).join("/");

export function navigate(target: string, { replace = false }: Navigation = {}) {
  const before = location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", target);
  announce();
  if (location.pathname !== before) {
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }
}

/** Change some parameters of the query; null takes one away. What is typed replaces the entry, what is chosen adds one. */
export function setQuery(changes: Query, { replace = true }: Navigation = {}) {
  const target = href(location.pathname, { ...current.query, ...changes });
  if (target !== location.pathname + location.search) navigate(target, { replace });
}

export function useLocation(): Place {
  const [place, setPlace] = useState(current);
  useEffect(() => {
    listeners.add(setPlace);
    setPlace(current);
    return () => {
      listeners.delete(setPlace);
    };
  }, []);
  return place;
}

addEventListener("popstate", announce);

// Ordinary links, so that a new tab and a copied address work; a plain click stays in the page.
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>("a[href]") : null;
  if (!anchor || anchor.target || anchor.hasAttribute("download")) return;
  const target = new URL(anchor.href);
  if (target.origin !== location.origin || /^\/(api|metrics|healthz|readyz|assets|schema-registry)(\/|$)/.test(target.pathname)) return;
  if (target.hash && target.pathname === location.pathname) return;
  event.preventDefault();
  navigate(target.pathname + target.search);
});
