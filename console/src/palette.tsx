// Ctrl-K leads to any page, topic or group by a part of its name; ? shows the keys.
import { useEffect, useRef, useState } from "preact/hooks";
import { apiPath } from "./api";
import { Dialog } from "./dialogs";
import { useLive, useSettled } from "./live";
import { navigate, pathOf } from "./router";

const FOUND_MAX = 6;

/** A place that can be gone to: what it is, its name, and its address. */
type Place = readonly [kind: string, name: string, path: string];

interface PaletteProps {
  pages: readonly (readonly [path: string, text: string, ...rest: unknown[]])[];
  onClose: () => void;
}

export const Palette = ({ pages, onClose }: PaletteProps) => {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const search = useSettled(text.trim(), 150);
  const list = useRef<HTMLUListElement>(null);
  const topics = useLive(apiPath("/topics"), { search, limit: FOUND_MAX, internal: false }, { every: 0 }).data?.items;
  const groups = useLive(apiPath("/consumers"), { search, limit: FOUND_MAX }, { every: 0 }).data?.items;
  const isKnown = topics && groups && search === text.trim();
  const all: Place[] = [
    ...pages.map(([path, name]): Place => ["Page", name, `/${path}`]),
    ...(topics ?? []).map(({ name }): Place => ["Topic", name, pathOf("topics", name)]),
    ...(groups ?? []).map(({ name }): Place => ["Group", name, pathOf("consumers", name)]),
  ];
  const places = all.filter(([, name]) => name.toLowerCase().includes(text.trim().toLowerCase()));
  const chosen = Math.min(at, places.length - 1);
  useEffect(() => list.current?.children[chosen]?.scrollIntoView({ block: "nearest" }), [chosen]);
  const go = (place: Place | undefined) => {
    if (!place) return;
    onClose();
    navigate(place[2]);
  };
  return (
    <Dialog title="Go to" onClose={onClose} onSubmit={() => go(places[chosen])} foot={<span class="small muted">Arrows choose, Enter opens</span>}>
      <input
        class="input"
        data-first
        role="combobox"
        aria-label="Page, topic or consumer group"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={places.length ? `palette-${chosen}` : undefined}
        placeholder="Page, topic or consumer group"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
          if (!step) return;
          event.preventDefault();
          setAt(Math.max(0, Math.min(chosen + step, places.length - 1)));
        }}
      />
      <ul class="palette" id="palette-list" role="listbox" aria-label="Places" ref={list}>
        {places.map((place, index) => (
          <li
            key={place[2]}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === chosen}
            onClick={() => go(place)}
          >
            <span class="muted">{place[0]}</span> <span class="clip">{place[1]}</span>
          </li>
        ))}
      </ul>
      {isKnown && places.length === 0 && <p class="muted">Nothing of that name.</p>}
    </Dialog>
  );
};

const KEYS: [keys: string, does: string][] = [
  ["Ctrl-K", "go to a page, topic or consumer group"],
  ["/", "search on this page"],
  ["↓ ↑", "move in a list"],
  ["Enter", "open what is chosen"],
  ["Esc", "close a dialog; clear, then leave the search"],
  ["?", "show these keys"],
];

export const Keys = ({ onClose }: { onClose: () => void }) => (
  <Dialog
    title="Keys"
    onClose={onClose}
    onSubmit={onClose}
    foot={
      <button type="submit" class="button" data-first>
        Close
      </button>
    }
  >
    <dl class="facts">
      {KEYS.map(([keys, does]) => [
        <dt>
          <kbd>{keys}</kbd>
        </dt>,
        <dd>{does}</dd>,
      ])}
    </dl>
  </Dialog>
);
