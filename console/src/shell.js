// The frame around every page: navigation, theme, keys that work everywhere, and what is known of the node as a whole.
import { createContext, html, useContext, useEffect, useErrorBoundary, useState } from "./preact.js";
import { Said } from "./dialogs.js";
import { count } from "./format.js";
import { Icon, Logo } from "./icons.js";
import { useLive } from "./live.js";
import { Notice, Segments } from "./parts.js";
import { useLocation } from "./router.js";

const ClusterContext = createContext(null);
/** What GET /cluster has answered last, or null. */
export const useCluster = () => useContext(ClusterContext);

const PLACES = [
  ["", "Overview", "overview"],
  ["topics", "Topics", "topics"],
  ["consumers", "Consumers", "consumers"],
  ["queues", "Queues", "queues"],
  ["streams", "Streams", "streams"],
  ["pipelines", "Pipelines", "pipelines"],
  ["storage", "Storage", "storage"],
  ["settings", "Settings", "settings"],
];

const Theme = () => {
  const [chosen, setChosen] = useState(penstockTheme.chosen());
  const choose = (name) => {
    penstockTheme.choose(name);
    setChosen(name);
  };
  const drawn = (icon, text) =>
    html`<span title=${text}
      ><span class="spoken">${text}</span><span class="icon-cell"><${Icon} name=${icon} /></span
    ></span>`;
  return html`<${Segments}
    label="Theme"
    value=${chosen}
    onChoose=${choose}
    options=${[
      ["light", drawn("sun", "Light")],
      ["system", drawn("screen", "As the system")],
      ["dark", drawn("moon", "Dark")],
    ]}
  />`;
};

function move(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return false;
  const at = rows.findIndex((row) => row === document.activeElement || row.closest("tr")?.contains(document.activeElement));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
  next?.focus();
  return Boolean(next);
}

function useKeys() {
  useEffect(() => {
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const typing = event.target.closest?.("input, textarea, select, [role=menu]");
      if (event.key === "/" && !typing) {
        const field = document.querySelector("[data-search]");
        if (field) {
          event.preventDefault();
          field.focus();
          field.select();
        }
      }
      const inSearch = event.target.matches?.("[data-search]");
      if (event.key === "ArrowDown" && (!typing || inSearch) && move(1)) event.preventDefault();
      if (event.key === "ArrowUp" && !typing && document.activeElement?.matches("[data-row]") && move(-1)) event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

/** A page that fails shows that in its own place; the frame stays. */
const Guarded = ({ children }) => {
  const [error, reset] = useErrorBoundary((failure) => console.error(failure));
  if (!error) return children;
  return html`<${Notice} tone="bad" title="This page has failed">
    <p>${String(error.message ?? error)}. That is a fault of the console; please report it with the address of this page.</p>
    <button type="button" class="button small" onClick=${reset}>Show it again</button><//
  >`;
};

export const Shell = ({ children }) => {
  const { segments, path } = useLocation();
  const [open, setOpen] = useState(false);
  const cluster = useLive("/cluster", {}, { every: 5000 });
  useKeys();
  useEffect(() => setOpen(false), [path]);
  const { data } = cluster;
  const counts = { topics: data?.topics, consumers: data?.consumers };
  return html`<${ClusterContext.Provider} value=${data}>
    <a class="skip" href="#main">Skip to the page</a>
    <div class="frame">
      <div class=${`side ${open ? "open" : ""}`}>
        <a class="brand" href="/" aria-label="Penstock, overview"><${Logo} />Penstock</a>
        <button
          type="button"
          class="button plain menu-button"
          aria-expanded=${String(open)}
          aria-controls="nav"
          onClick=${() => setOpen(!open)}
        >
          <${Icon} name="menu" />Menu
        </button>
        <nav class="nav" id="nav" aria-label="Pages">
          ${PLACES.map(
            ([key, text, icon]) =>
              html`<a key=${key} href=${`/${key}`} aria-current=${(segments[0] ?? "") === key ? "page" : null}>
                <${Icon}
                  name=${icon}
                />${text}${counts[key] !== undefined && html`<span class="count num">${count(counts[key])}</span>`}</a
              >`,
          )}
        </nav>
        <div class="side-foot">
          <div class="identity">
            ${
              data &&
              html`<div class="clip" title=${`cluster ${data.id}`}>
                  <strong>${data.name}</strong> <span class="muted">node ${data.node_id}</span>
                </div>
                <div class="muted">version ${data.version}</div>`
            }
          </div>
          <${Theme} />
        </div>
      </div>
      <main class="main" id="main" tabindex="-1"><${Guarded} key=${segments[0] ?? ""}>${children}<//></main>
    </div>
    ${cluster.error && html`<div class="offline" role="alert">${cluster.error.message}</div>`}
    <${Said} />
  <//>`;
};
