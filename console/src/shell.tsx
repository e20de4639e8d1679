// The frame around every page: navigation, theme, keyboard shortcuts, and the state of the node.
import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useErrorBoundary, useState } from "preact/hooks";
import { type Schemas, UNREACHABLE, apiPath } from "./api";
import { ClusterSwitch } from "./clusters";
import { Toasts } from "./dialogs";
import { count } from "./format";
import { Icon, type IconName, Logo } from "./icons";
import { useLive } from "./live";
import { Keys, Palette } from "./palette";
import { Notice, Segments } from "./parts";
import { useLocation } from "./router";
import { SignIn, needsSignIn, signOut } from "./sign_in";

const ClusterContext = createContext<Schemas["ClusterView"] | null>(null);
/** The last answer of GET /cluster, or null. */
export const useCluster = () => useContext(ClusterContext);

const PLACES: [path: string, text: string, icon: IconName][] = [
  ["", "Overview", "overview"],
  ["topics", "Topics", "topics"],
  ["consumers", "Consumer groups", "consumers"],
  ["queues", "Queues", "queues"],
  ["streams", "Streams", "streams"],
  ["pipelines", "Pipelines", "pipelines"],
  ["schemas", "Schemas", "schemas"],
  ["storage", "Storage", "storage"],
  ["nodes", "Nodes", "nodes"],
  ["security", "Security", "security"],
  ["settings", "Settings", "settings"],
];

declare global {
  /** Made by theme.js, before the first paint. */
  const penstockTheme: { chosen: () => string; choose: (name: string) => void };
}

const Theme = () => {
  const [chosen, setChosen] = useState(penstockTheme.chosen());
  const choose = (name: string) => {
    penstockTheme.choose(name);
    setChosen(name);
  };
  const drawn = (icon: IconName, text: string) => (
    <span title={text}>
      <span class="spoken">{text}</span>
      <span class="icon-cell">
        <Icon name={icon} />
      </span>
    </span>
  );
  return (
    <Segments
      label="Theme"
      value={chosen}
      onChoose={choose}
      options={[
        ["light", drawn("sun", "Light")],
        ["system", drawn("screen", "As the system")],
        ["dark", drawn("moon", "Dark")],
      ]}
    />
  );
};

function move(step: 1 | -1): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  if (!rows.length) return false;
  const at = rows.findIndex((row) => row === document.activeElement || row.closest("tr")?.contains(document.activeElement));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
  next?.focus();
  return Boolean(next);
}

type Opened = "palette" | "keys" | null;

/** Keys that work on every page. Returns the dialog that one of them has opened, and what closes it. */
function useKeys(): [opened: Opened, open: (opened: Opened) => void] {
  const [opened, open] = useState<Opened>(null);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !document.querySelector("dialog[open]")) {
        event.preventDefault();
        open("palette");
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const target = event.target instanceof Element ? event.target : null;
      const typing = target?.closest("input, textarea, select, [role=menu]");
      if (event.key === "/" && !typing) {
        const field = document.querySelector<HTMLInputElement>("[data-search]");
        if (field) {
          event.preventDefault();
          field.focus();
          field.select();
        }
      }
      if (event.key === "?" && !typing) open("keys");
      const inSearch = target?.matches("[data-search]");
      if (event.key === "ArrowDown" && (!typing || inSearch) && move(1)) event.preventDefault();
      if (event.key === "ArrowUp" && !typing && document.activeElement?.matches("[data-row]") && move(-1)) event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  return [opened, open];
}

/** A page that fails shows its error in place; the frame stays. */
const ErrorBoundary = ({ children }: { children: ComponentChildren }) => {
  const [error, reset] = useErrorBoundary((failure) => console.error(failure));
  if (!error) return children;
  return (
    <Notice tone="bad" title="This page has failed">
      <p>
        {String(error instanceof Error ? error.message : error)}. This is a bug in the console; please report it with the
        address of this page.
      </p>
      <button type="button" class="button small" onClick={reset}>
        Reload
      </button>
    </Notice>
  );
};

export const Shell = ({ children }: { children: ComponentChildren }) => {
  const { segments, path } = useLocation();
  const [open, setOpen] = useState(false);
  const cluster = useLive(apiPath("/cluster"), {}, { every: 5000 });
  const [dialog, openDialog] = useKeys();
  useEffect(() => setOpen(false), [path]);
  useEffect(() => {
    addEventListener(UNREACHABLE, cluster.refresh);
    return () => removeEventListener(UNREACHABLE, cluster.refresh);
  }, []);
  const { data } = cluster;
  if (needsSignIn(cluster.error)) return <SignIn onDone={() => location.reload()} />;
  const counts: Partial<Record<string, number>> = { topics: data?.topics, consumers: data?.consumers };
  return (
    <ClusterContext.Provider value={data}>
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <div class="frame">
        <header class={`side ${open ? "open" : ""}`}>
          <a class="brand" href="/" aria-label="Penstock, overview">
            <Logo />
            Penstock
          </a>
          <button
            type="button"
            class="button plain menu-button"
            aria-expanded={open}
            aria-controls="nav"
            onClick={() => setOpen(!open)}
          >
            <Icon name="menu" />
            Menu
          </button>
          {data && <ClusterSwitch name={data.name} />}
          <nav class="nav" id="nav" aria-label="Pages">
            {PLACES.map(([key, text, icon]) => (
              <a key={key} href={`/${key}`} aria-current={(segments[0] ?? "") === key ? "page" : undefined}>
                <Icon name={icon} />
                {text}
                {counts[key] !== undefined && <span class="count num">{count(counts[key])}</span>}
              </a>
            ))}
          </nav>
          <div class="side-foot">
            <div class="identity">
              {data && (
                <>
                  <div class="clip" title={`cluster ${data.id}`}>
                    <strong>{data.name}</strong> <span class="muted">node {data.node_id}</span>
                  </div>
                  <div class="muted">version {data.version}</div>
                  {data.user && (
                    <div class="row spread">
                      <span class="clip" title={`signed in as ${data.user}`}>
                        <strong>{data.user}</strong>
                      </span>
                      <button type="button" class="button small" onClick={signOut}>
                        Sign out
                      </button>
                    </div>
                  )}
                </>
              )}
            </div>
            <div class="row">
              <button type="button" class="button small" onClick={() => openDialog("palette")}>
                Go to… <kbd>Ctrl-K</kbd>
              </button>
              <a class="button small" href="/docs/" target="_blank">
                Docs
              </a>
            </div>
            <Theme />
          </div>
        </header>
        <main class="main" id="main" tabindex={-1}>
          <ErrorBoundary key={segments[0] ?? ""}>{children}</ErrorBoundary>
        </main>
      </div>
      {cluster.error && (
        <div class="offline" role="alert">
          {cluster.error.message}
        </div>
      )}
      {dialog === "palette" && <Palette pages={PLACES} onClose={() => openDialog(null)} />}
      {dialog === "keys" && <Keys onClose={() => openDialog(null)} />}
      <Toasts />
    </ClusterContext.Provider>
  );
};
