// Which page is shown is decided by the first part of the path; pages are loaded when they are first opened.
import { html, render, useEffect, useState } from "./preact.js";
import { Empty, Notice, PageHead } from "./parts.js";
import { useLocation } from "./router.js";
import { Shell } from "./shell.js";

const PAGES = {
  "": () => import("./pages/overview.js"),
  topics: ({ length }) => (length > 1 ? import("./pages/topic.js") : import("./pages/topics.js")),
  consumers: ({ length }) => (length > 1 ? import("./pages/consumer.js") : import("./pages/consumers.js")),
  queues: ({ length }) => (length > 1 ? import("./pages/queue.js") : import("./pages/queues.js")),
  streams: () => import("./pages/streams.js"),
  pipelines: () => import("./pages/pipelines.js"),
  storage: () => import("./pages/storage.js"),
  settings: () => import("./pages/settings.js"),
};

const Page = () => {
  const { segments } = useLocation();
  const key = `${segments[0] ?? ""}/${segments.length > 1}`;
  const [loaded, setLoaded] = useState({ key: null });
  useEffect(() => {
    let wanted = true;
    const load = PAGES[segments[0] ?? ""];
    if (!load) return undefined;
    load(segments).then(
      (module) => wanted && setLoaded({ key, View: module.default }),
      (error) => wanted && setLoaded({ key, error }),
    );
    return () => {
      wanted = false;
    };
  }, [key]);
  if (!PAGES[segments[0] ?? ""])
    return html`<${PageHead} title="Not found" /><${Empty} title="There is no such page">Choose one at the left.<//>`;
  if (loaded.key !== key) return null;
  if (loaded.error)
    return html`<${Notice} tone="bad" title="The page could not be loaded"
      >${String(loaded.error.message)}. Reload; the node may have been upgraded or stopped.<//
    >`;
  return html`<${loaded.View} key=${segments[1] ?? ""} />`;
};

render(html`<${Shell}><${Page} /><//>`, document.getElementById("app"));
