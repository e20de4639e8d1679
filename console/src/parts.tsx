// Small parts that pages are put together from.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { isUnreachable } from "./api";
import { bytes } from "./format";
import { Icon, type IconName } from "./icons";
import { setQuery } from "./router";

/** A change of what a form's field holds. */
export type FieldEvent = JSX.TargetedEvent<HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement>;
export type Tone = "" | "good" | "accent" | "warn" | "bad";

let lastId = 0;
export const useId = () => useState(() => `f${++lastId}`)[0];

interface PageHeadProps {
  title: string;
  crumbs?: ComponentChildren;
  note?: ComponentChildren;
  children?: ComponentChildren;
}

export const PageHead = ({ title, crumbs, children, note }: PageHeadProps) => {
  useEffect(() => {
    document.title = `${title} · Penstock`;
  }, [title]);
  return (
    <header class="page-head">
      <div>
        {crumbs && (
          <nav class="crumbs" aria-label="Where you are">
            {crumbs}
          </nav>
        )}
        <h1>{title}</h1>
        {note && <p>{note}</p>}
      </div>
      {children && <div class="row">{children}</div>}
    </header>
  );
};

interface CardProps {
  title?: string;
  actions?: ComponentChildren;
  children?: ComponentChildren;
  /** The children fill it, as tables do. */
  bare?: boolean;
  /** What it is called where it has no title. */
  label?: string;
}

export const Card = ({ title, actions, children, bare, label }: CardProps) => (
  <section class="card" aria-label={label ?? title}>
    {title && (
      <div class="card-head">
        <h2>{title}</h2>
        {actions}
      </div>
    )}
    {bare ? children : <div class="card-body">{children}</div>}
  </section>
);

interface TileProps {
  label: string;
  children?: ComponentChildren;
  note?: ComponentChildren;
  href?: string;
}

export const Tile = ({ label, children, note, href }: TileProps) => {
  const Box = href ? "a" : "div";
  return (
    <Box class="card tile" href={href}>
      <span class="label">{label}</span>
      <span class="figure">{children}</span>
      <span class="note">{note ?? "\u00a0"}</span>
    </Box>
  );
};

interface BadgeProps {
  tone?: Tone;
  plain?: boolean;
  children: ComponentChildren;
  title?: string;
}

export const Badge = ({ tone = "", plain, children, title }: BadgeProps) => (
  <span class={`badge ${tone} ${plain ? "plain" : ""}`} title={title}>
    {children}
  </span>
);

const TONES: Partial<Record<string, Tone>> = {
  running: "good",
  healthy: "good",
  stable: "good",
  serving: "good",
  up: "good",
  leader: "good",
  ok: "good",
  done: "good",
  working: "accent",
  up_to_date: "good",
  finished: "good",
  open: "good",
  starting: "accent",
  moving: "accent",
  leaving: "accent",
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
  paused: "",
  stopping: "accent",
  empty: "",
  dead: "",
  silent: "warn",
  full: "warn",
  mounted: "good",
  out: "bad",
  away: "bad",
  down: "bad",
  unreached: "bad",
  failed: "bad",
  lost: "bad",
  fenced: "bad",
  broken: "bad",
  critical: "bad",
  error: "bad",
};
/** A state in words, with the colour it deserves. */
export const State = ({ of }: { of: string | null | undefined }) =>
  of ? (
    <Badge tone={TONES[of.toLowerCase()] ?? ""}>
      {of
        .replace(/_/g, " ")
        .replace(/([a-z])([A-Z])/g, "$1 $2")
        .toLowerCase()}
    </Badge>
  ) : (
    <span class="muted">–</span>
  );

interface NoticeProps {
  tone?: Tone;
  title?: string | null;
  children?: ComponentChildren;
  role?: "note";
}

export const Notice = ({ tone = "", title, children, role }: NoticeProps) => (
  <div class={`notice ${tone}`} role={role ?? (tone === "bad" ? "alert" : undefined)}>
    <Icon name={tone === "good" ? "done" : tone ? "warning" : "info"} />
    <div>
      {title && <strong>{title}</strong>}
      {children}
    </div>
  </div>
);

interface FailureProps {
  error: Error | null;
  again?: (() => void) | null;
  what?: string | null;
}

/** A failure in its place: what happened, what to do, and a way to try at once. That the node is gone is said once, by the frame. */
export const Failure = ({ error, again, what }: FailureProps) =>
  error &&
  !(again && isUnreachable(error)) && (
    <Notice tone="bad" title={what ? `${what} could not be loaded` : null}>
      <span>{error.message}</span>
      {again && (
        <>
          {" "}
          <button type="button" class="button small" onClick={again}>
            Try now
          </button>
        </>
      )}
    </Notice>
  );

interface EmptyProps {
  title: string;
  children?: ComponentChildren;
  /** A command that would fill it. */
  command?: string;
}

export const Empty = ({ title, children, command }: EmptyProps) => (
  <div class="empty">
    <h2>{title}</h2>
    {children && <p>{children}</p>} {command && <Command text={command} label="Command" />}
  </div>
);

/** Placeholders of the size of what comes. */
export const Bone = ({ width }: { width?: string }) => <span class="bone" style={{ width }} />;

export async function copyText(text: string) {
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

interface CopyButtonProps {
  text: string | (() => string);
  label: string;
  /** Whether the label is seen, or only spoken. */
  shown?: boolean;
  plain?: boolean;
}

export const CopyButton = ({ text, label, shown = true, plain = false }: CopyButtonProps) => {
  const [done, setDone] = useState(false);
  const copy = async (event: Event) => {
    event.stopPropagation();
    await copyText(typeof text === "function" ? text() : text);
    setDone(true);
    setTimeout(() => setDone(false), 1600);
  };
  return (
    <button
      type="button"
      class={`button small ${plain ? "plain" : ""}`}
      onClick={copy}
      aria-label={shown ? undefined : label}
      title={shown ? undefined : label}
    >
      <Icon name={done ? "done" : "copy"} />
      {shown && (done ? "Copied" : label)}
      <span class="spoken" role="status">
        {done ? "Copied" : ""}
      </span>
    </button>
  );
};

export const Command = ({ text, label }: { text: string; label: string }) => (
  <div class="command">
    <pre tabindex={0} aria-label={label}>
      {text}
    </pre>
    <CopyButton text={text} label="Copy" shown={false} plain />
  </div>
);

interface FieldProps {
  id: string;
  label: string;
  hint?: string;
  children: ComponentChildren;
}

export const Field = ({ id, label, hint, children }: FieldProps) => (
  <div class="field">
    <label for={id}>{label}</label>
    {children}
    {hint && <span class="hint">{hint}</span>}
  </div>
);

interface SearchProps {
  label: string;
  value: string | undefined;
  onChange?: (text: string) => void;
  placeholder?: string;
}

/** The search field of a page: what is typed is in the URL, and / leads to it. */
export const Search = ({ label, value, onChange, placeholder }: SearchProps) => {
  const typed = (text: string) => (onChange ? onChange(text) : setQuery({ search: text || null, at: null }));
  return (
    <span class="search">
      <Icon name="search" />
      <input
        class="input"
        type="search"
        data-search
        autocomplete="off"
        spellcheck={false}
        aria-label={label}
        placeholder={placeholder ?? label}
        value={value ?? ""}
        onInput={(event) => typed(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          // The first Esc clears the field, the next one leaves it.
          if (event.currentTarget.value) typed("");
          else document.getElementById("main")?.focus({ preventScroll: true });
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </span>
  );
};

interface SegmentsProps {
  label: string;
  options: (readonly [key: string, text: ComponentChildren])[];
  value: string;
  onChoose: (key: string) => void;
  disabled?: boolean;
}

export const Segments = ({ label, options, value, onChoose, disabled }: SegmentsProps) => (
  <div class="segments" role="group" aria-label={label}>
    {options.map(([key, text]) => (
      <button key={key} type="button" aria-pressed={key === value} disabled={disabled} onClick={() => onChoose(key)}>
        {text}
      </button>
    ))}
  </div>
);

interface TabsProps {
  label: string;
  tabs: (readonly [key: string, text: string, target: string])[];
  current: string;
}

export const Tabs = ({ label, tabs, current }: TabsProps) => {
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    const chosen = box.current?.querySelector<HTMLElement>("[aria-current]");
    if (box.current && chosen) box.current.scrollLeft = chosen.offsetLeft - box.current.offsetLeft - 40;
  }, [current]);
  return (
    <nav class="tabs" aria-label={label} ref={box}>
      {tabs.map(([key, text, target]) => (
        <a key={key} href={target} aria-current={key === current ? "page" : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
};

/** A term and what is known of it. */
export type Fact = readonly [term: string, value: ComponentChildren];

export const Facts = ({ of }: { of: Fact[] }) => (
  <dl class="facts">{of.map(([term, value]) => [<dt>{term}</dt>, <dd>{value}</dd>])}</dl>
);

interface MeterProps {
  share: number | null;
  label: string;
  /** The part of the share that is Penstock's own; the rest is drawn paler. */
  own?: number;
}

/** A bar of how much of something is used; it warns from 80 % and alarms from 92 %. */
export const Meter = ({ share, label, own }: MeterProps) => {
  const known = share !== null && Number.isFinite(share) ? Math.min(Math.max(share, 0), 1) : 0;
  return (
    <div
      class={`meter ${known >= 0.92 ? "bad" : known >= 0.8 ? "warn" : ""}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(known * 100)}
    >
      <i class={own === undefined ? "" : "others"} style={{ width: `${known * 100}%` }} />
      {own !== undefined && <i style={{ width: `${Math.min(own, known) * 100}%` }} />}
    </div>
  );
};

/** How much of disks is used by what is not Penstock's, which is why a bar may be long though Penstock uses little. */
export const OtherFiles = ({ used, free, total }: { used: number; free: number; total: number }) => (
  <span class="small muted">{bytes(Math.max(0, total - free - used))} by other files on these disks</span>
);

export interface MenuAction {
  text: string;
  act: () => void;
  danger?: boolean;
  icon?: IconName;
  /** Why it would be refused; it cannot be chosen then. */
  refused?: string | null;
}

interface MenuProps {
  label: string;
  icon: IconName;
  actions: MenuAction[];
}

/** A button with a list of actions; arrows move in it, Esc and a click elsewhere close it. */
export const Menu = ({ label, icon, actions }: MenuProps) => {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event: Event) => {
      if (!(event.target instanceof Node) || !box.current?.contains(event.target)) setOpen(false);
    };
    addEventListener("pointerdown", outside);
    box.current?.querySelector<HTMLElement>(".menu-list button")?.focus();
    return () => removeEventListener("pointerdown", outside);
  }, [open]);
  const keys = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>) => {
    const menu = event.currentTarget;
    const items = [...menu.querySelectorAll<HTMLElement>(".menu-list button")];
    const at = items.findIndex((item) => item === document.activeElement);
    if (event.key === "Escape" && open) {
      event.stopPropagation();
      setOpen(false);
      menu.querySelector("button")?.focus();
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
  return (
    <div class="menu" ref={box} onKeyDown={keys}>
      <button type="button" class="button" aria-haspopup="menu" aria-expanded={open} onClick={() => setOpen(!open)}>
        {icon && <Icon name={icon} />}
        {label}
      </button>
      {open && (
        <div class="menu-list" role="menu">
          {actions.map(({ text, act, danger, icon: drawn, refused }) => (
            <button
              key={text}
              type="button"
              role="menuitem"
              class={danger ? "danger" : ""}
              disabled={Boolean(refused)}
              title={refused ?? undefined}
              onClick={() => {
                setOpen(false);
                // The item is about to go: what opens now gives the focus back to the button.
                box.current?.querySelector("button")?.focus();
                act();
              }}
            >
              {drawn && <Icon name={drawn} />}
              {text}
            </button>
          ))}
        </div>
      )}
    </div>
  );
};
