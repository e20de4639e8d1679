// Messages of a topic: from either end, an offset or a time; searched by the node; or as they come.
import { html, useEffect, useRef, useState } from "../preact.js";
import { API, apiPath, request } from "../api.js";
import { bytes, clockOf, count, dateOf, integer } from "../format.js";
import { Icon } from "../icons.js";
import { useSettled } from "../live.js";
import { Empty, Failure, Menu, Search, copyText, useId } from "../parts.js";
import { say } from "../dialogs.js";
import { href, setQuery } from "../router.js";
import { useCluster } from "../shell.js";
import { consumeCommand, consumeProgram } from "../snippets.js";
import { parseExactly } from "../values.js";
import { MessageTable } from "./message_table.js";
import { Produce } from "./produce.js";

const HELD_MAX = 500;
const LIMIT = 50;

const localTime = (ms) => {
  const at = new Date(ms);
  return `${dateOf(at)}T${clockOf(at)}`;
};

/** What is being typed into a field stays there until it is done, whatever is shown anew meanwhile. */
function useDraft(value) {
  const [draft, setDraft] = useState(null);
  return { shown: draft ?? value, type: (event) => setDraft(event.target.value), done: () => setDraft(null) };
}

/** Where to begin: a kind and, for two of them, a value. */
const StartChoice = ({ start }) => {
  const [kind, value = ""] = start.split(":");
  const draft = useDraft(kind === "time" ? localTime(Number(value)) : value);
  const [id, valueId] = [useId(), useId()];
  const choose = (event) => {
    const chosen = event.target.value;
    draft.done();
    setQuery(
      { start: { newest: null, oldest: "oldest", offset: "offset:0", time: `time:${Date.now() - 3600e3}` }[chosen], live: null },
      { replace: false },
    );
  };
  return html`<div class="field inline">
    <label for=${id}>From</label
    ><select id=${id} class="select" value=${kind} onChange=${choose}>
      <option value="newest">newest</option>
      <option value="oldest">oldest</option>
      <option value="offset">offset…</option>
      <option value="time">time…</option>
    </select>
    ${
      kind === "offset" &&
      html`<label class="spoken" for=${valueId}>Offset</label
        ><input
          id=${valueId}
          class="input offset-input"
          type="number"
          min="0"
          value=${draft.shown}
          onInput=${draft.type}
          onChange=${(event) => {
            draft.done();
            setQuery({ start: `offset:${Math.max(0, Math.trunc(Number(event.target.value) || 0))}` }, { replace: false });
          }}
        />`
    }
    ${
      kind === "time" &&
      html`<label class="spoken" for=${valueId}>Time</label
        ><input
          id=${valueId}
          class="input"
          type="datetime-local"
          step="1"
          value=${draft.shown}
          onInput=${draft.type}
          onChange=${(event) => {
            draft.done();
            const ms = new Date(event.target.value).getTime();
            if (ms >= 0) setQuery({ start: `time:${ms}` }, { replace: false });
          }}
        />`
    }
  </div>`;
};

const PartitionChoice = ({ partition, partitions }) => {
  const id = useId();
  const draft = useDraft(partition ?? "");
  const choose = (event) => {
    draft.done();
    setQuery({ partition: event.target.value === "" ? null : event.target.value }, { replace: false });
  };
  return html`<div class="field inline">
    <label for=${id}>Partition</label>${
      partitions <= 200
        ? html`<select id=${id} class="select" value=${partition ?? ""} onChange=${choose}>
            <option value="">all</option>
            ${Array.from({ length: partitions }, (_, number) => html`<option key=${number} value=${number}>${number}</option>`)}
          </select>`
        : html`<input
            id=${id}
            class="input offset-input"
            type="number"
            min="0"
            max=${partitions - 1}
            placeholder="all"
            value=${draft.shown}
            onInput=${draft.type}
            onChange=${choose}
          />`
    }
  </div>`;
};

/** Messages that are there: a page, and further ones on demand. */
function useMessages(name, question, live) {
  const key = href(name, question);
  const [state, setState] = useState({ key: null, items: [], next: null, scanned: 0, busy: true, error: null });
  const [turn, setTurn] = useState(0);
  const control = useRef(null);
  const ask = async (cursor, before) => {
    control.current?.abort();
    const own = new AbortController();
    control.current = own;
    setState((old) => ({ ...old, busy: true, error: null }));
    try {
      const answer = await request("GET", apiPath("topics", name, "messages"), {
        query: { ...question, cursor },
        signal: own.signal,
        parse: parseExactly,
      });
      setState((old) => ({
        key,
        items: before ? [...old.items, ...answer.items] : answer.items,
        next: answer.next,
        scanned: (before ? old.scanned : 0) + answer.scanned_bytes,
        busy: false,
        error: null,
      }));
    } catch (error) {
      if (!own.signal.aborted)
        setState((old) => ({ ...old, key, items: before || old.key === key ? old.items : [], busy: false, error }));
    }
  };
  useEffect(() => {
    if (live) return undefined;
    ask(null, false);
    return () => control.current?.abort();
  }, [key, live, turn]);
  return { ...state, more: () => ask(state.next, true), refresh: () => setTurn((old) => old + 1) };
}

/** Messages as they come, by server-sent events; while paused they are held back, and counted. */
function useTail(name, question, live, paused) {
  const [state, setState] = useState({ items: [], waiting: 0, dropped: 0, isOpen: false, error: null });
  const held = useRef({ arrived: [], drawing: 0, paused });
  held.current.paused = paused;
  const draw = () => {
    held.current.drawing = 0;
    const { arrived } = held.current;
    if (held.current.paused) {
      if (arrived.length > HELD_MAX) arrived.splice(0, arrived.length - HELD_MAX);
      setState((old) => ({ ...old, waiting: arrived.length }));
      return;
    }
    held.current.arrived = [];
    setState((old) => ({ ...old, items: [...arrived.reverse(), ...old.items].slice(0, HELD_MAX), waiting: 0 }));
  };
  useEffect(() => {
    if (!live) return undefined;
    setState({ items: [], waiting: 0, dropped: 0, isOpen: false, error: null });
    held.current.arrived = [];
    const source = new EventSource(href(`${API}${apiPath("topics", name, "tail")}`, question), { withCredentials: true });
    const soon = () => {
      if (!held.current.drawing) held.current.drawing = setTimeout(draw, 200);
    };
    source.addEventListener("open", () => setState((old) => ({ ...old, isOpen: true, error: null })));
    source.addEventListener("messages", (event) => {
      const told = parseExactly(event.data);
      held.current.arrived.push(...told.items);
      if (told.dropped) setState((old) => ({ ...old, dropped: old.dropped + told.dropped }));
      soon();
    });
    source.addEventListener("end", (event) => {
      source.close();
      setState((old) => ({ ...old, isOpen: false, error: new Error(JSON.parse(event.data).message) }));
    });
    source.addEventListener("error", () =>
      setState((old) => ({
        ...old,
        isOpen: false,
        error:
          source.readyState === EventSource.CLOSED
            ? new Error(
                "The node refused to send messages as they come. Check that the topic is there and that you may read it, then start again.",
              )
            : new Error("The connection was lost; it is made again by itself."),
      })),
    );
    return () => {
      source.close();
      clearTimeout(held.current.drawing);
      held.current.drawing = 0;
    };
  }, [name, href("", question), live]);
  useEffect(() => {
    if (live && !paused && held.current.arrived.length) draw();
  }, [paused]);
  return state;
}

const Nothing = ({ name, search, next }) => {
  if (search)
    return html`<${Empty} title=${next ? "Nothing found so far" : "No message has this in it"}
      >Key, value and headers were searched for “${search}”.<//
    >`;
  return html`<${Empty} title="No messages here" command=${`echo hello | penstock produce ${name}`}
    >Nothing was written to this part of the topic yet, or it is past its retention. Write something:<//
  >`;
};

const LiveBar = ({ tail, paused, onPause }) =>
  html`<div class="row live-bar" role="status">
    <span class=${`live-dot ${tail.isOpen && !paused ? "on" : ""}`} aria-hidden="true"></span>
    <span>${paused ? `Paused, ${tail.waiting} waiting` : tail.isOpen ? "Messages are shown as they come" : "Connecting…"}</span>
    ${tail.dropped > 0 && html`<span class="muted">${count(tail.dropped)} left out: they came faster than can be shown</span>`}
    <button type="button" class="button small push" onClick=${onPause}>
      <${Icon} name=${paused ? "play" : "pause"} />${paused ? "Go on" : "Pause"}
    </button>
  </div>`;

export const Messages = ({ name, topic, query, refresh: refreshTopic }) => {
  const cluster = useCluster();
  const live = query.live === "1";
  const start = query.start ?? "newest";
  const partition = query.partition === undefined ? null : Number(query.partition);
  const search = useSettled(query.search ?? "", 300);
  const limit = [50, 200, 500].includes(Number(query.limit)) ? Number(query.limit) : LIMIT;
  const page = useMessages(name, { partition, start, limit, search }, live);
  const [paused, setPaused] = useState(false);
  const tail = useTail(name, { partition, search }, live, paused);
  const [producing, setProducing] = useState(false);
  const shown = { topic: name, start, partition, partitions: topic.partitions, limit, live, search };
  const copy = (text) => async () => {
    await copyText(text);
    say("Copied.");
  };
  const items = live ? tail.items : page.items;
  const toggle = () => {
    setPaused(false);
    setQuery({ live: live ? null : "1" }, { replace: false });
  };
  return html`<div class="stack">
    <div class="row message-bar">
      <${StartChoice} start=${start} /><${PartitionChoice} partition=${partition} partitions=${topic.partitions} />
      <${Search}
        label="Search in key, value and headers"
        placeholder="Search messages"
        value=${query.search}
        onChange=${(text) => setQuery({ search: text || null })}
      />
      <button type="button" class="button" aria-pressed=${String(live)} onClick=${toggle}>
        <span class=${`live-dot ${live ? "on" : ""}`} aria-hidden="true"></span>Live
      </button>
      ${!live && html`<button type="button" class="button" onClick=${page.refresh}>Refresh</button>`}
      <${Menu}
        label="Copy as"
        icon="copy"
        actions=${[
          { text: "Command: penstock consume", act: copy(consumeCommand(cluster, shown)) },
          { text: "Program in Python", act: copy(consumeProgram(cluster, shown)) },
        ]}
      />
      <button type="button" class="button primary" onClick=${() => setProducing(true)}>
        <${Icon} name="send" />Write a message
      </button>
    </div>
    ${live && html`<${LiveBar} tail=${tail} paused=${paused} onPause=${() => setPaused(!paused)} />`}
    <${Failure} error=${live ? tail.error : page.error} again=${live ? null : page.refresh} what=${live ? null : "Messages"} />
    <div class="card" aria-busy=${String(page.busy)}>
      ${
        items.length > 0
          ? html`<${MessageTable} topic=${name} items=${items} open=${query.open} />`
          : live
            ? html`<${Empty} title="Waiting for messages" command=${`echo hello | penstock produce ${name}`}
                >What is written from now on is shown here.<//
              >`
            : page.key !== null && !page.busy && !page.error
              ? html`<${Nothing} name=${name} search=${search} next=${page.next} />`
              : html`<div class="empty quiet"></div>`
      }
      ${
        (live || page.key !== null) &&
        html`<div class="table-foot">
          <span
            >${live ? `the last ${integer(items.length)}` : `${integer(items.length)} shown, ${bytes(page.scanned)} looked at`}</span
          >
          ${
            !live &&
            html`<div class="field inline push">
              <label for="limit">At a time</label
              ><select
                id="limit"
                class="select small"
                value=${limit}
                onChange=${(event) => setQuery({ limit: event.target.value === String(LIMIT) ? null : event.target.value }, { replace: false })}
              >
                ${[50, 200, 500].map((number) => html`<option key=${number} value=${number}>${number}</option>`)}
              </select>
            </div>`
          }
          ${!live && page.next && html`<button type="button" class="button small" disabled=${page.busy} onClick=${page.more}>${search && !items.length ? "Search on" : start === "newest" ? "Show older ones" : "Show more"}</button>`}
        </div>`
      }
    </div>
    ${
      producing &&
      html`<${Produce}
        topic=${topic}
        onClose=${() => setProducing(false)}
        onDone=${() => {
          refreshTopic();
          if (!live) page.refresh();
        }}
      />`
    }
  </div>`;
};
