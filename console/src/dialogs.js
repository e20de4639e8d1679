// Dialogs and the messages that say what was done. The browser's own <dialog> keeps the focus inside and closes on Esc.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { Icon } from "./icons.js";
import { Failure, Notice, useId } from "./parts.js";

export const Dialog = ({ title, onClose, children, foot, wide, onSubmit }) => {
  const box = useRef(null);
  const id = useId();
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    box.current.querySelector("[data-first]")?.focus();
    return () => before?.focus?.({ preventScroll: true });
  }, []);
  const submit = (event) => {
    event.preventDefault();
    onSubmit?.();
  };
  return html`<dialog
    class=${`dialog ${wide ? "wide" : ""}`}
    ref=${box}
    aria-labelledby=${id}
    onCancel=${(event) => {
      event.preventDefault();
      onClose();
    }}
    onPointerDown=${(event) => {
      if (event.target === box.current) onClose();
    }}
  >
    <form onSubmit=${submit} novalidate>
      <div class="dialog-head">
        <h2 id=${id}>${title}</h2>
        <button type="button" class="button plain small" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>
      </div>
      <div class="dialog-body">${children}</div>
      ${foot && html`<div class="dialog-foot">${foot}</div>`}
    </form>
  </dialog>`;
};

/**
 * Asks before something is changed or destroyed. `touches` says exactly what; with `typed`, its text must be typed first.
 * `act` is awaited: a failure is shown here, and the dialog stays.
 */
export const Confirm = ({ title, touches, typed, verb, danger = true, act, onClose }) => {
  const [text, setText] = useState("");
  const [state, setState] = useState({ busy: false, error: null });
  const id = useId();
  const ready = !typed || text === typed;
  const go = async () => {
    if (!ready || state.busy) return;
    setState({ busy: true, error: null });
    try {
      await act();
      onClose();
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  return html`<${Dialog}
    title=${title}
    onClose=${onClose}
    onSubmit=${go}
    foot=${html` <button type="button" class="button" data-first=${!typed} onClick=${onClose}>Cancel</button>
      <button type="submit" class=${`button primary ${danger ? "danger" : ""}`} disabled=${!ready || state.busy}>
        ${state.busy ? "Working…" : verb}
      </button>`}
  >
    <div>${touches}</div>
    ${
      typed &&
      html`<div class="field">
        <label for=${id}>Type <code>${typed}</code> to confirm</label>
        <input
          id=${id}
          class="input mono"
          data-first
          autocomplete="off"
          spellcheck=${false}
          value=${text}
          onInput=${(event) => setText(event.target.value)}
        />
      </div>`
    }
    <${Failure} error=${state.error} />
  <//>`;
};

const shown = [];
const listeners = new Set();
const announce = () => {
  for (const listener of listeners) listener([...shown]);
};

/** Say in the corner, and to screen readers, what was done. */
export function say(text, tone = "good") {
  const one = { text, tone, key: Math.random() };
  shown.push(one);
  announce();
  setTimeout(() => {
    shown.splice(shown.indexOf(one), 1);
    announce();
  }, 5000);
}

export const Said = () => {
  const [all, setAll] = useState([]);
  useEffect(() => {
    listeners.add(setAll);
    return () => listeners.delete(setAll);
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${all.map(({ text, tone, key }) => html`<${Notice} key=${key} tone=${tone}>${text}<//>`)}
  </div>`;
};
