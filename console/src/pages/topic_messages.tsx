// Messages of a topic: from either end, an offset or a time, with search on the node; or live.
import { useEffect, useRef, useState } from "preact/hooks";
import { API, type QueryOf, type Schemas, apiPath, errorOf, get, isUnreachable } from "../api";
import { say } from "../dialogs";
import { bytes, count, integer } from "../format";
import { Icon } from "../icons";
import { useLive, useSettled } from "../live";
import { Empty, Failure, type FieldEvent, Menu, Search, copyText, useId } from "../parts";
import { type Place, type Query, href, setQuery } from "../router";
import { useRights } from "../rights";
import { useCluster } from "../shell";
import { command, consumeCommand, consumeProgram, quoted } from "../snippets";
import { parseExactly } from "../values";
import { DECODERS, DecoderChoice } from "./decoder_choice";
import { Filters, columnsOf, exportActions, localTime, useDraft } from "./message_filters";
import { LinkedMessage, MessageTable, idOf } from "./message_table";
import { Produce } from "./produce";

const HELD_MAX = 500;
const LIMIT = 50;
const RETRY_MS = 3000;

type Message = Schemas["MessageView"];

/** The first value of each kind of start in the URL. */
const STARTS: Record<string, () => string | null> = {
  newest: () => null,
  oldest: () => "oldest",
  offset: () => "offset:0",
  time: () => `time:${Date.now() - 3600e3}`,
};

/** Where to start: a kind and, for two of them, a value. */
const StartChoice = ({ start }: { start: string }) => {
  const [kind, value = ""] = start.split(":");
  const draft = useDraft(kind === "time" ? localTime(Number(value)) : value);
  const [id, valueId] = [useId(), useId()];
  const choose = (event: FieldEvent) => {
    const chosen = STARTS[event.currentTarget.value];
    draft.done();
    setQuery({ start: chosen?.(), live: null }, { replace: false });
  };
  return (
    <div class="field inline">
      <label for={id}>From</label>
      <select id={id} class="select" value={kind} onChange={choose}>
        <option value="newest">newest</option>
        <option value="oldest">oldest</option>
        <option value="offset">offset…</option>
        <option value="time">time…</option>
      </select>
      {kind === "offset" && (
        <>
          <label class="spoken" for={valueId}>
            Offset
          </label>
          <input
            id={valueId}
            class="input offset-input"
            type="number"
            min="0"
            value={draft.shown}
            onInput={draft.type}
            onChange={(event) => {
              draft.done();
              setQuery(
                { start: `offset:${Math.max(0, Math.trunc(Number(event.currentTarget.value) || 0))}` },
                { replace: false },
              );
            }}
          />
        </>
      )}
      {kind === "time" && (
        <>
          <label class="spoken" for={valueId}>
            Time
          </label>
          <input
            id={valueId}
            class="input"
            type="datetime-local"
            step="1"
            value={draft.shown}
            onInput={draft.type}
            onChange={(event) => {
              draft.done();
              const ms = new Date(event.currentTarget.value).getTime();
              if (ms >= 0) setQuery({ start: `time:${ms}` }, { replace: false });
            }}
          />
        </>
      )}
    </div>
  );
};

const PartitionChoice = ({ partition, partitions }: { partition: number | null; partitions: number }) => {
  const id = useId();
  const draft = useDraft(partition ?? "");
  const choose = (event: FieldEvent) => {
    draft.done();
    setQuery({ partition: event.currentTarget.value === "" ? null : event.currentTarget.value }, { replace: false });
  };
  return (
    <div class="field inline">
      <label for={id}>Partition</label>
      {partitions <= 200 ? (
        <select id={id} class="select" value={partition ?? ""} onChange={choose}>
          <option value="">all</option>
          {Array.from({ length: partitions }, (_, number) => (
            <option key={number} value={number}>
              {number}
            </option>
          ))}
        </select>
      ) : (
        <input
          id={id}
          class="input offset-input"
          type="number"
          min="0"
          max={partitions - 1}
          placeholder="all"
          value={draft.shown}
          onInput={draft.type}
          onChange={choose}
        />
      )}
    </div>
  );
};

interface Page {
  key: string | null;
  items: Message[];
  next: string | null;
  scanned: number;
  busy: boolean;
  error: Error | null;
}

/** Stored messages: a page, and further pages on demand. */
function useMessages(name: string, question: QueryOf<"/topics/{name}/messages">, live: boolean) {
  const key = href(name, question as Query);
  const [state, setState] = useState<Page>({ key: null, items: [], next: null, scanned: 0, busy: true, error: null });
  const [turn, setTurn] = useState(0);
  const control = useRef<AbortController | null>(null);
  const ask = async (cursor: string | null, before: boolean) => {
    control.current?.abort();
    const own = new AbortController();
    control.current = own;
    setState((old) => ({ ...old, busy: true, error: null }));
    try {
      const answer = await get(
        apiPath("/topics/{name}/messages", { name }),
        { ...question, cursor },
        { signal: own.signal, parse: parseExactly },
      );
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
        setState((old) => ({
          ...old,
          key,
          items: before || old.key === key ? old.items : [],
          busy: false,
          error: errorOf(error),
        }));
    }
  };
  useEffect(() => {
    if (live) return undefined;
    ask(null, false);
    return () => control.current?.abort();
  }, [key, live, turn]);
  useEffect(() => {
    if (!isUnreachable(state.error)) return undefined;
    const timer = setTimeout(() => setTurn((old) => old + 1), RETRY_MS);
    return () => clearTimeout(timer);
  }, [state.error]);
  return { ...state, more: () => ask(state.next, true), refresh: () => setTurn((old) => old + 1) };
}

interface Tail {
  items: Message[];
  waiting: number;
  dropped: number;
  isOpen: boolean;
  error: Error | null;
}

/** The data of a server-sent event, which the OpenAPI document cannot describe. */
interface TailEvent {
  items: Message[];
  dropped: number;
}

interface Arrivals {
  arrived: Message[];
  drawing: ReturnType<typeof setTimeout> | undefined;
  paused: boolean;
}

/** New messages by server-sent events; while paused they are buffered and counted. */
function useTail(name: string, question: QueryOf<"/topics/{name}/tail">, live: boolean, paused: boolean): Tail {
  const [state, setState] = useState<Tail>({ items: [], waiting: 0, dropped: 0, isOpen: false, error: null });
  const held = useRef<Arrivals>({ arrived: [], drawing: undefined, paused });
  held.current.paused = paused;
  const draw = () => {
    held.current.drawing = undefined;
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
    const address = href(API + apiPath("/topics/{name}/tail", { name }), question as Query);
    const source = new EventSource(address, { withCredentials: true });
    const soon = () => {
      if (!held.current.drawing) held.current.drawing = setTimeout(draw, 200);
    };
    source.addEventListener("open", () => setState((old) => ({ ...old, isOpen: true, error: null })));
    source.addEventListener("messages", (event: MessageEvent<string>) => {
      const told = parseExactly(event.data) as TailEvent;
      held.current.arrived.push(...told.items);
      if (told.dropped) setState((old) => ({ ...old, dropped: old.dropped + told.dropped }));
      soon();
    });
    source.addEventListener("end", (event: MessageEvent<string>) => {
      source.close();
      const { message } = JSON.parse(event.data) as { message: string };
      setState((old) => ({ ...old, isOpen: false, error: new Error(message) }));
    });
    source.addEventListener("error", () =>
      setState((old) => ({
        ...old,
        isOpen: false,
        error:
          source.readyState === EventSource.CLOSED
            ? new Error(
                "The node refused the live view. Check that the topic exists and that you may read it, then turn Live on again.",
              )
            : new Error("The connection was lost; reconnecting."),
      })),
    );
    return () => {
      source.close();
      clearTimeout(held.current.drawing);
      held.current.drawing = undefined;
    };
  }, [name, href("", question as Query), live]);
  useEffect(() => {
    if (live && !paused && held.current.arrived.length) draw();
  }, [paused]);
  return state;
}

interface NothingProps {
  name: string;
  search: string;
  filter: string;
  next: string | null;
  start: string;
  partition: number | null;
}

/** Where the partitions end, for those who ask for an offset that is not there yet. */
const PastTheEnd = ({ name, start, partition }: Omit<NothingProps, "search" | "filter" | "next">) => {
  const { data } = useLive(apiPath("/topics/{name}/partitions", { name }), { limit: 500 }, { every: 5000 });
  const asked = Number(start.split(":")[1]);
  const ends = (data?.items ?? []).filter((row) => partition === null || row.partition === partition);
  const last = Math.max(0, ...ends.map(({ end }) => end));
  if (!data) return <div class="empty quiet" />;
  return (
    <Empty title={asked >= last ? `Offset ${integer(asked)} is past the end` : "No messages from this offset on"}>
      {ends.length === 1
        ? `Partition ${ends[0]?.partition} has offsets from ${integer(ends[0]?.start)} up to ${integer(ends[0]?.end)}, not included.`
        : `The longest partition ends at offset ${integer(last)}.`}{" "}
      <button type="button" class="button small" onClick={() => setQuery({ start: null }, { replace: false })}>
        Show the newest
      </button>
    </Empty>
  );
};

const Nothing = ({ name, search, filter, next, start, partition }: NothingProps) => {
  const cluster = useCluster();
  if (search || filter)
    return (
      <Empty title={next ? "Nothing found so far" : "No matching messages"}>
        {search && `Key, value and headers were searched for “${search}”. `}
        {filter && `The filter was “${filter}”.`}
      </Empty>
    );
  if (start.startsWith("offset:") && start !== "offset:0")
    return <PastTheEnd name={name} start={start} partition={partition} />;
  return (
    <Empty title="No messages here" command={command(cluster, `echo hello | penstock produce ${quoted(name)}`)}>
      Nothing was produced here yet, or it has expired. To produce a message:
    </Empty>
  );
};

const LiveBar = ({ tail, paused, onPause }: { tail: Tail; paused: boolean; onPause: () => void }) => (
  <div class="row live-bar" role="status">
    <span class={`live-dot ${tail.isOpen && !paused ? "on" : ""}`} aria-hidden="true" />
    <span>{paused ? `Paused, ${tail.waiting} waiting` : tail.isOpen ? "Showing new messages live" : "Connecting…"}</span>
    {tail.dropped > 0 && <span class="muted">{count(tail.dropped)} skipped: the topic is faster than the page</span>}
    <button type="button" class="button small push" onClick={onPause}>
      <Icon name={paused ? "play" : "pause"} />
      {paused ? "Resume" : "Pause"}
    </button>
  </div>
);

interface MessagesProps {
  name: string;
  topic: Schemas["TopicView"];
  query: Place["query"];
  refresh: () => void;
}

export const Messages = ({ name, topic, query, refresh: refreshTopic }: MessagesProps) => {
  const cluster = useCluster();
  const refusal = useRights("topic", name);
  const live = query.live === "1";
  const start = query.start ?? "newest";
  const partition = query.partition === undefined ? null : Number(query.partition);
  const search = useSettled(query.search ?? "", 300);
  const filter = query.filter ?? "";
  const until = query.until === undefined ? null : Number(query.until);
  const columns = columnsOf(query.columns);
  const [filtering, setFiltering] = useState(Boolean(filter || until || columns.length));
  const decoder = DECODERS.find(([key]) => key === query.decoder)?.[0] ?? "auto";
  const schema = decoder === "avro" || decoder === "protobuf" ? (query.schema ?? "") : "";
  const limit = [50, 200, 500].includes(Number(query.limit)) ? Number(query.limit) : LIMIT;
  const page = useMessages(name, { partition, start, limit, search, filter, until, decoder, schema }, live);
  const [paused, setPaused] = useState(false);
  const tail = useTail(name, { partition, search, filter, decoder, schema }, live, paused);
  const [producing, setProducing] = useState(false);
  const shown = { topic: name, start, partition, partitions: topic.partitions, limit, live, search };
  const copy = (text: string) => async () => {
    await copyText(text);
    say("Copied.");
  };
  const items = live ? tail.items : page.items;
  const isLoaded = live || (page.key !== null && !page.busy);
  const toggle = () => {
    setPaused(false);
    setQuery({ live: live ? null : "1" }, { replace: false });
  };
  return (
    <div class="stack">
      <div class="row message-bar">
        <Search
          label="Search in key, value and headers"
          placeholder="Search messages"
          value={query.search}
          onChange={(text) => setQuery({ search: text || null })}
        />
        <div class="row push">
          <button type="button" class="button" aria-expanded={filtering} onClick={() => setFiltering(!filtering)}>
            <Icon name="filter" />
            Filters
          </button>
          <button type="button" class="button" aria-pressed={live} onClick={toggle}>
            <span class={`live-dot ${live ? "on" : ""}`} aria-hidden="true" />
            Live
          </button>
          {!live && (
            <button type="button" class="button" onClick={page.refresh}>
              Refresh
            </button>
          )}
          <Menu
            label="Export"
            icon="copy"
            actions={[
              { text: "Copy command: penstock consume", act: copy(consumeCommand(cluster, shown)) },
              { text: "Copy program in Python", act: copy(consumeProgram(cluster, shown)) },
              ...exportActions(name, items, columns),
            ]}
          />
          <button
            type="button"
            class="button primary"
            disabled={Boolean(refusal("WRITE"))}
            title={refusal("WRITE") ?? undefined}
            onClick={() => setProducing(true)}
          >
            <Icon name="send" />
            Produce
          </button>
        </div>
      </div>
      <div class="row message-bar">
        <StartChoice start={start} />
        <PartitionChoice partition={partition} partitions={topic.partitions} />
        <DecoderChoice decoder={decoder} schema={query.schema ?? ""} />
      </div>
      {filtering && <Filters query={query} live={live} />}
      {live && <LiveBar tail={tail} paused={paused} onPause={() => setPaused(!paused)} />}
      <Failure error={live ? tail.error : page.error} again={live ? null : page.refresh} what={live ? null : "Messages"} />
      {query.open && isLoaded && !items.some((item) => idOf(item) === query.open) && (
        <LinkedMessage key={query.open} topic={name} id={query.open} />
      )}
      <div class="card" aria-busy={page.busy}>
        {items.length > 0 ? (
          <MessageTable topic={name} items={items} open={query.open} columns={columns} />
        ) : live ? (
          <Empty title="Waiting for messages" command={command(cluster, `echo hello | penstock produce ${quoted(name)}`)}>
            New messages appear here.
          </Empty>
        ) : page.key !== null && !page.busy && !page.error ? (
          <Nothing name={name} search={search} filter={filter} next={page.next} start={start} partition={partition} />
        ) : (
          <div class="empty quiet" />
        )}
        {(live || page.key !== null) && (
          <div class="table-foot">
            <span>
              {live ? `the last ${integer(items.length)}` : `${integer(items.length)} shown, ${bytes(page.scanned)} scanned`}
            </span>
            {!live && (
              <div class="field inline push">
                <label for="limit">Per page</label>
                <select
                  id="limit"
                  class="select small"
                  value={limit}
                  onChange={(event) =>
                    setQuery(
                      { limit: event.currentTarget.value === String(LIMIT) ? null : event.currentTarget.value },
                      { replace: false },
                    )
                  }
                >
                  {[50, 200, 500].map((number) => (
                    <option key={number} value={number}>
                      {number}
                    </option>
                  ))}
                </select>
              </div>
            )}
            {!live && page.next && (
              <button type="button" class="button small" disabled={page.busy} onClick={page.more}>
                {(search || filter) && !items.length ? "Continue search" : start === "newest" ? "Show older" : "Show more"}
              </button>
            )}
          </div>
        )}
      </div>
      {producing && (
        <Produce
          topic={name}
          partitions={topic.partitions}
          onClose={() => setProducing(false)}
          onDone={() => {
            refreshTopic();
            if (!live) page.refresh();
          }}
        />
      )}
    </div>
  );
};
