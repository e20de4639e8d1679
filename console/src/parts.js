// Small parts that pages are put together from.
import { html, useEffect, useRef, useState } from "./preact.js";
import { Icon } from "./icons.js";
import { setQuery } from "./router.js";

let lastId = 0;
export const useId = () => useState(() => `f${++lastId}`)[0];

export const PageHead = ({ title, crumbs, children, note }) => {
  useEffect(() => {
    document.title = `${title} · Penstock`;
  }, [title]);
  return html`<header class="page-head">
    <div>
      ${crumbs && html`<nav class="crumbs" aria-label="Where you are">${crumbs}</nav>`}
      <h1>${title}</h1>
      ${note && html`<p>${note}</p>`}
    </div>
    ${children && html`<div class="row">${children}</div>`}
  </header>`;
};

export const Card = ({ title, actions, children, bare, label }) =>
  html`<section class="card" aria-label=${label ?? title}>
    ${
      title &&
      html`<div class="card-head">
        <h2>${title}</h2>
        ${actions}
      </div>`
    }
    ${bare ? children : html`<div class="card-body">${children}</div>`}
  </section>`;

export const Tile = ({ label, children, note, href, title }) =>
  html`<${href ? "a" : "div"} class="card tile" href=${href} title=${title}>
    <span class="label">${label}</span><span class="figure">${children}</span><span class="note">${note ?? "\u00a0"}</span>
  <//>`;

export const Badge = ({ tone = "", plain, children, title }) =>
  html`<span class=${`badge ${tone} ${plain ? "plain" : ""}`} title=${title}>${children}</span>`;

const TONES = {
  running: "good",
  healthy: "good",
  stable: "good",
  serving: "good",
  ok: "good",
  up_to_date: "good",
  finished: "good",
  open: "good",
  starting: "accent",
  waiting: "accent",
  booting: "accent",
  preparingrebalance: "accent",
  completingrebalance: "accent",
  assigning: "accent",
  reconciling: "accent",
  pending_consumption: "accent",
  healing: "accent",
  failing: "bad",
  degraded: "warn",
  restarting: "warn",
  "read-only": "warn",
  warning: "warn",
  expired: "warn",
  ahead: "warn",
  stopped: "",
  empty: "",
  dead: "",
  silent: "warn",
  full: "warn",
  mounted: "good",
  out: "bad",
  failed: "bad",
  lost: "bad",
  fenced: "bad",
  broken: "bad",
  critical: "bad",
  error: "bad",
};
/** A state in words, with the colour it deserves. */
export const State = ({ of, title }) =>
  of
    ? html`<${Badge} tone=${TONES[String(of).toLowerCase()] ?? ""} title=${title}
        >${String(of)
          .replace(/_/g, " ")
          .replace(/([a-z])([A-Z])/g, "$1 $2")
          .toLowerCase()}<//
      >`
    : html`<span class="muted">–</span>`;

export const Notice = ({ tone = "", title, children, role }) =>
  html`<div class=${`notice ${tone}`} role=${role ?? (tone === "bad" ? "alert" : null)}>
    <${Icon} name=${tone === "good" ? "done" : tone ? "warning" : "info"} />
    <div>${title && html`<strong>${title}</strong>`}${children}</div>
  </div>`;

/** A failure in its place: what happened, what to do, and a way to try at once. */
export const Failure = ({ error, again, what }) =>
  error &&
  html`<${Notice} tone="bad" title=${what ? `${what} could not be loaded` : null}>
    <span>${error.message}</span>
    ${again && html` <button type="button" class="button small" onClick=${again}>Try now</button>`}
  <//>`;

export const Empty = ({ title, children, command, commandLabel }) =>
  html`<div class="empty">
    <h2>${title}</h2>
    ${children && html`<p>${children}</p>`} ${command && html`<${Command} text=${command} label=${commandLabel ?? "Command"} />`}
  </div>`;

/** Placeholders of the size of what comes. */
export const Bone = ({ width }) => html`<span class="bone" style=${{ width: width ?? null }}></span>`;

export async function copyText(text) {
  if (navigator.clipboard && isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Over plain HTTP from another machine the browser offers no clipboard: select and copy as of old.
  const area = document.createElement("textarea");
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export const CopyButton = ({ text, label = "Copy", shown = true, small = true, plain = false }) => {
  const [done, setDone] = useState(false);
  const copy = async (event) => {
    event.stopPropagation();
    await copyText(typeof text === "function" ? text() : text);
    setDone(true);
    setTimeout(() => setDone(false), 1600);
  };
  return html`<button
    type="button"
    class=${`button ${small ? "small" : ""} ${plain ? "plain" : ""}`}
    onClick=${copy}
    aria-label=${shown ? null : label}
    title=${shown ? null : label}
  >
    <${Icon} name=${done ? "done" : "copy"} />${shown && (done ? "Copied" : label)}<span class="spoken" role="status"
      >${done ? "Copied" : ""}</span
    >
  </button>`;
};

export const Command = ({ text, label = "Command" }) =>
  html`<div class="command">
    <pre tabindex="0" aria-label=${label}>${text}</pre>
    <${CopyButton} text=${text} label="Copy" shown=${false} plain />
  </div>`;

export const Field = ({ label, hint, children, inline, id }) =>
  html`<div class=${`field ${inline ? "inline" : ""}`}>
    <label for=${id}>${label}</label>${children}${hint && html`<span class="hint">${hint}</span>`}
  </div>`;

/** The search field of a page: what is typed is in the URL, and / leads to it. */
export const Search = ({ label, value, onChange, placeholder }) => {
  const typed = (text) => (onChange ? onChange(text) : setQuery({ search: text || null, at: null }));
  return html`<span class="search"
    ><${Icon} name="search" />
    <input
      class="input"
      type="search"
      data-search
      autocomplete="off"
      spellcheck=${false}
      aria-label=${label}
      placeholder=${placeholder ?? label}
      value=${value ?? ""}
      onInput=${(event) => typed(event.target.value)}
      onKeyDown=${(event) => {
        if (event.key === "Escape") {
          typed("");
          event.target.blur();
        }
      }}
    /><kbd aria-hidden="true">/</kbd></span
  >`;
};

export const Segments = ({ label, options, value, onChoose }) =>
  html`<div class="segments" role="group" aria-label=${label}>
    ${options.map(([key, text]) => html`<button key=${key} type="button" aria-pressed=${String(key === value)} onClick=${() => onChoose(key)}>${text}</button>`)}
  </div>`;

export const Tabs = ({ label, tabs, current }) => {
  const box = useRef(null);
  useEffect(() => {
    const chosen = box.current.querySelector("[aria-current]");
    if (chosen) box.current.scrollLeft = chosen.offsetLeft - box.current.offsetLeft - 40;
  }, [current]);
  return html`<nav class="tabs" aria-label=${label} ref=${box}>
    ${tabs.map(([key, text, target]) => html`<a key=${key} href=${target} aria-current=${key === current ? "page" : null}>${text}</a>`)}
  </nav>`;
};

export const Facts = ({ of }) =>
  html`<dl class="facts">${of.filter(Boolean).map(([term, value]) => [html`<dt>${term}</dt>`, html`<dd>${value}</dd>`])}</dl>`;

/** A bar of how much of something is used; it warns from 80 % and alarms from 92 %. */
export const Meter = ({ share, label }) => {
  const known = Number.isFinite(share) ? Math.min(Math.max(share, 0), 1) : 0;
  return html`<div
    class=${`meter ${known >= 0.92 ? "bad" : known >= 0.8 ? "warn" : ""}`}
    role="meter"
    aria-label=${label}
    aria-valuemin="0"
    aria-valuemax="100"
    aria-valuenow=${Math.round(known * 100)}
  >
    <i style=${{ width: `${known * 100}%` }}></i>
  </div>`;
};

/** A button with a list of actions; arrows move in it, Esc and a click elsewhere close it. */
export const Menu = ({ label, icon, actions }) => {
  const [open, setOpen] = useState(false);
  const box = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => {
      if (!box.current?.contains(event.target)) setOpen(false);
    };
    addEventListener("pointerdown", outside);
    box.current.querySelector(".menu-list button")?.focus();
    return () => removeEventListener("pointerdown", outside);
  }, [open]);
  const keys = (event) => {
    const items = [...box.current.querySelectorAll(".menu-list button")];
    const at = items.indexOf(document.activeElement);
    if (event.key === "Escape" && open) {
      event.stopPropagation();
      setOpen(false);
      box.current.querySelector("button").focus();
    }
    if (event.key === "ArrowDown" && open) {
      event.preventDefault();
      items[(at + 1) % items.length]?.focus();
    }
    if (event.key === "ArrowUp" && open) {
      event.preventDefault();
      items[(at - 1 + items.length) % items.length]?.focus();
    }
  };
  return html`<div class="menu" ref=${box} onKeyDown=${keys}>
    <button type="button" class="button" aria-haspopup="menu" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>
      ${icon && html`<${Icon} name=${icon} />`}${label}
    </button>
    ${
      open &&
      html`<div class="menu-list" role="menu">
        ${actions.filter(Boolean).map(
          ({ text, act, danger, icon: drawn }) =>
            html`<button
              key=${text}
              type="button"
              role="menuitem"
              class=${danger ? "danger" : ""}
              onClick=${() => {
                setOpen(false);
                act();
              }}
            >
              ${drawn && html`<${Icon} name=${drawn} />`}${text}
            </button>`,
        )}
      </div>`
    }
  </div>`;
};
