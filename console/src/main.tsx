// Which page is shown is decided by the first part of the path; pages are loaded when they are first opened.
import { type ComponentType, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { errorOf } from "./api";
import { Empty, Notice, PageHead } from "./parts";
import { useLocation } from "./router";
import { Shell } from "./shell";

type Load = (segments: string[]) => Promise<{ default: ComponentType }>;

const PAGES: Partial<Record<string, Load>> = {
  "": () => import("./pages/overview"),
  topics: ({ length }) => (length > 1 ? import("./pages/topic") : import("./pages/topics")),
  consumers: ({ length }) => (length > 1 ? import("./pages/consumer") : import("./pages/consumers")),
  queues: ({ length }) => (length > 1 ? import("./pages/queue") : import("./pages/queues")),
  streams: () => import("./pages/streams"),
  pipelines: () => import("./pages/pipelines"),
  schemas: ({ length }) => (length > 1 ? import("./pages/schema") : import("./pages/schemas")),
  storage: () => import("./pages/storage"),
  nodes: () => import("./pages/nodes"),
  security: () => import("./pages/security"),
  settings: () => import("./pages/settings"),
};

const RELOADED = "penstock-reloaded";
const RELOAD_PAUSE_MS = 20_000;

/** Reloads once the node answers again. A browser may remember that a part of the page failed to load, so asking again is no use. */
function useReloadWhenBack(isBroken: boolean) {
  useEffect(() => {
    if (!isBroken) return undefined;
    const timer = setInterval(async () => {
      const last = Number(sessionStorage.getItem(RELOADED) ?? 0);
      if (Date.now() - last < RELOAD_PAUSE_MS || !(await fetch("/readyz").catch(() => null))?.ok) return;
      sessionStorage.setItem(RELOADED, String(Date.now()));
      location.reload();
    }, 2000);
    return () => clearInterval(timer);
  }, [isBroken]);
}

interface LoadedPage {
  key: string;
  View?: ComponentType;
  error?: Error;
}

const Page = () => {
  const { segments } = useLocation();
  const key = `${segments[0] ?? ""}/${segments.length > 1}`;
  const [loaded, setLoaded] = useState<LoadedPage | null>(null);
  useEffect(() => {
    let wanted = true;
    const load = PAGES[segments[0] ?? ""];
    if (!load) return undefined;
    load(segments).then(
      (module) => wanted && setLoaded({ key, View: module.default }),
      (error: unknown) => wanted && setLoaded({ key, error: errorOf(error) }),
    );
    return () => {
      wanted = false;
    };
  }, [key]);
  useReloadWhenBack(Boolean(loaded?.key === key && loaded.error));
  if (!PAGES[segments[0] ?? ""])
    return (
      <>
        <PageHead title="Not found" />
        <Empty title="There is no such page">Choose one at the left.</Empty>
      </>
    );
  if (loaded?.key !== key) return null;
  if (!loaded.View)
    return (
      <Notice tone="bad" title="The page could not be loaded">
        {loaded.error?.message}. The node may be down or was upgraded; the page is loaded as soon as it answers.
      </Notice>
    );
  return <loaded.View key={segments[1] ?? ""} />;
};

render(
  <Shell>
    <Page />
  </Shell>,
  document.getElementById("app")!,
);
