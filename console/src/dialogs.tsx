// Dialogs and the messages that say what was done. The browser's own <dialog> keeps the focus inside and closes on Esc.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { errorOf } from "./api";
import { Icon } from "./icons";
import { Failure, Notice, type Tone, useId } from "./parts";

interface DialogProps {
  title: string;
  onClose: () => void;
  onSubmit: () => void;
  children: ComponentChildren;
  foot: ComponentChildren;
  wide?: boolean;
}

export const Dialog = ({ title, onClose, onSubmit, children, foot, wide }: DialogProps) => {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const before = document.activeElement;
    const dialog = box.current;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>("[data-first]")?.focus();
    return () => {
      dialog?.close(); // while it is open, nothing outside of it takes the focus
      // What was focused may be gone, or be the page itself: the keyboard goes on in the main part then.
      const known = before?.isConnected && before !== document.body ? before : document.getElementById("main");
      if (known instanceof HTMLElement || known instanceof SVGElement) known.focus({ preventScroll: true });
    };
  }, []);
  const submit = (event: JSX.TargetedSubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    onSubmit();
  };
  return (
    <dialog
      class={`dialog ${wide ? "wide" : ""}`}
      ref={box}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onPointerDown={(event) => {
        if (event.target === box.current) onClose();
      }}
    >
      <form onSubmit={submit} novalidate>
        <div class="dialog-head">
          <h2 id={id}>{title}</h2>
          <button type="button" class="button plain small" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        </div>
        <div class="dialog-body">{children}</div>
        <div class="dialog-foot">{foot}</div>
      </form>
    </dialog>
  );
};

interface ConfirmProps {
  title: string;
  /** Says exactly what will be changed. */
  touches: ComponentChildren;
  /** A text that must be typed first. */
  typed?: string;
  verb: string;
  danger?: boolean;
  act: () => Promise<void>;
  onClose: () => void;
}

/** Whether a form is being sent, and how that failed. */
export interface FormState {
  busy: boolean;
  error: Error | null;
}

interface FormDialogProps {
  title: string;
  verb: string;
  danger?: boolean;
  /** Whether it may be sent yet. */
  ready?: boolean;
  /** Whether Cancel has the focus at first, where nothing has to be typed. */
  cancelFirst?: boolean;
  wide?: boolean;
  send: () => Promise<void>;
  onClose: () => void;
  children: ComponentChildren;
}

/** A dialog that sends what its form holds. A failure of `send` is shown in it, and it stays. */
export const FormDialog = ({ title, verb, danger, ready = true, cancelFirst, wide, send, onClose, children }: FormDialogProps) => {
  const [state, setState] = useState<FormState>({ busy: false, error: null });
  const go = async () => {
    if (!ready || state.busy) return;
    setState({ busy: true, error: null });
    try {
      await send();
      onClose();
    } catch (error) {
      setState({ busy: false, error: errorOf(error) });
    }
  };
  return (
    <Dialog
      title={title}
      wide={wide}
      onClose={onClose}
      onSubmit={go}
      foot={
        <>
          <button type="button" class="button" data-first={cancelFirst} onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={`button primary ${danger ? "danger" : ""}`} disabled={!ready || state.busy}>
            {state.busy ? "Working…" : verb}
          </button>
        </>
      }
    >
      {children}
      <Failure error={state.error} />
    </Dialog>
  );
};

/** Asks before something is changed or destroyed. */
export const Confirm = ({ title, touches, typed, verb, danger = true, act, onClose }: ConfirmProps) => {
  const [text, setText] = useState("");
  const id = useId();
  return (
    <FormDialog
      title={title}
      verb={verb}
      danger={danger}
      ready={!typed || text === typed}
      cancelFirst={!typed}
      send={act}
      onClose={onClose}
    >
      <div>{touches}</div>
      {typed && (
        <div class="field">
          <label for={id}>
            Type <code>{typed}</code> to confirm
          </label>
          <input
            id={id}
            class="input mono"
            data-first
            autocomplete="off"
            spellcheck={false}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </div>
      )}
    </FormDialog>
  );
};

interface Toast {
  text: string;
  tone: Tone;
  key: number;
}

const shown: Toast[] = [];
const listeners = new Set<(messages: Toast[]) => void>();
const announce = () => {
  for (const listener of listeners) listener([...shown]);
};

/** Say in the corner, and to screen readers, what was done. */
export function say(text: string, tone: Tone = "good") {
  const message = { text, tone, key: Math.random() };
  shown.push(message);
  announce();
  setTimeout(() => {
    shown.splice(shown.indexOf(message), 1);
    announce();
  }, 5000);
}

export const Toasts = () => {
  const [all, setAll] = useState<Toast[]>([]);
  useEffect(() => {
    listeners.add(setAll);
    return () => {
      listeners.delete(setAll);
    };
  }, []);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {all.map(({ text, tone, key }) => (
        <Notice key={key} tone={tone}>
          {text}
        </Notice>
      ))}
    </div>
  );
};
