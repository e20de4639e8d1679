// One topic: its frame and tabs. Each tab is a module of its own.
import { html, useState } from "../preact.js";
import { apiPath, post, remove } from "../api.js";
import { Confirm, Dialog, say } from "../dialogs.js";
import { Bytes, Count, bytes, integer, plural } from "../format.js";
import { forget, useLive } from "../live.js";
import { Badge, Empty, Failure, Menu, PageHead, Tabs, useId } from "../parts.js";
import { navigate, pathOf, useLocation } from "../router.js";
import { HistoryTab } from "./topic_metrics.js";
import { Messages } from "./topic_messages.js";
import { Partitions } from "./topic_partitions.js";
import { Readers } from "./topic_consumers.js";
import { Configuration } from "./topic_config.js";
import { QueueView } from "./queue_view.js";

const TABS = {
  messages: ["Messages", Messages],
  partitions: ["Partitions", Partitions],
  consumers: ["Consumers", Readers],
  queue: ["Queue", QueueView],
  config: ["Configuration", Configuration],
  metrics: ["Metrics", HistoryTab],
};

const Delete = ({ topic, onClose }) =>
  html`<${Confirm}
    title=${`Delete topic ${topic.name}?`}
    typed=${topic.name}
    verb="Delete the topic"
    onClose=${onClose}
    act=${async () => {
      await remove(apiPath("topics", topic.name));
      forget("/topics");
      say(`Topic ${topic.name} was deleted.`);
      navigate("/topics");
    }}
    touches=${html`This deletes <strong>${plural(topic.partitions, "partition")}</strong> with <strong>${plural(topic.messages, "message")}</strong> (${bytes(topic.bytes)}) and the positions of <strong>${plural(topic.consumers, "consumer")}</strong> in it. It cannot be undone.`}
  />`;

const MorePartitions = ({ topic, onClose, refresh }) => {
  const [total, setTotal] = useState(String(topic.partitions + 1));
  const [error, setError] = useState(null);
  const id = useId();
  const add = async () => {
    try {
      await post(apiPath("topics", topic.name, "partitions"), { total: Number(total) });
      say(`${topic.name} has ${total} partitions now.`);
      refresh();
      onClose();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${Dialog}
    title=${`Add partitions to ${topic.name}`}
    onClose=${onClose}
    onSubmit=${add}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button>
      <button type="submit" class="button primary" disabled=${!(Number(total) > topic.partitions)}>Add partitions</button>`}
  >
    <p>
      There are ${integer(topic.partitions)} now. Messages stay where they are; new ones with a key may go to another partition
      than older ones of that key. There can never be fewer.
    </p>
    <div class="field">
      <label for=${id}>Partitions in all</label
      ><input
        id=${id}
        class="input"
        data-first
        type="number"
        min=${topic.partitions + 1}
        max="100000"
        value=${total}
        onInput=${(event) => setTotal(event.target.value)}
      />
    </div>
    <${Failure} error=${error} />
  <//>`;
};

const Trim = ({ topic, onClose, refresh }) => {
  const { data } = useLive(apiPath("topics", topic.name, "partitions"), { limit: 500 }, { every: 0 });
  const filled = data ? data.items.filter(({ start, end }) => end > start) : [];
  const offsets = Object.fromEntries(filled.map(({ partition, end }) => [partition, end]));
  const messages = filled.reduce((sum, { start, end }) => sum + end - start, 0);
  const places = filled.slice(0, 4).map(({ partition, end }) => `offset ${integer(end)} of partition ${partition}`);
  const upTo = places.join(", ") + (filled.length > 4 ? ", …" : "");
  const drop = async () => {
    await post(apiPath("topics", topic.name, "trim"), { offsets });
    say(`${topic.name} was trimmed.`);
    refresh();
  };
  return html`<${Confirm}
    title=${`Drop all messages of ${topic.name}?`}
    typed=${topic.name}
    verb="Drop the messages"
    onClose=${onClose}
    act=${drop}
    touches=${html`<p>This drops the <strong>${plural(messages, "message")}</strong> that are there now: up to ${upTo}.</p>
      <p>Offsets go on from there; topic, configuration and consumers stay. It cannot be undone.</p>`}
  />`;
};

export default function Topic() {
  const { segments, query } = useLocation();
  const [, name, tab = "messages"] = segments;
  const { data: topic, error, refresh } = useLive(apiPath("topics", name));
  const [asking, setAsking] = useState(null);
  const close = () => setAsking(null);
  const crumbs = html`<a href="/topics">Topics</a> /`;
  if (error?.status === 404) {
    return html`<div class="page">
      <${PageHead} title=${name} crumbs=${crumbs} /><${Empty}
        title="There is no such topic"
        command=${`penstock topic create ${name}`}
        >It was deleted, or never made. <a href="/topics">All topics</a><//
      >
    </div>`;
  }
  const [, View] = TABS[tab] ?? TABS.messages;
  const actions =
    topic &&
    [
      !topic.is_internal && { text: "Add partitions…", act: () => setAsking("partitions"), icon: "plus" },
      !topic.is_internal && { text: "Drop all messages…", act: () => setAsking("trim"), danger: true, icon: "close" },
      !topic.is_internal && { text: "Delete topic…", act: () => setAsking("delete"), danger: true, icon: "trash" },
    ].filter(Boolean);
  return html`<div class="page">
    <${PageHead}
      title=${name}
      crumbs=${crumbs}
      note=${topic ? html`<${Count} value=${topic.messages} /> messages, <${Bytes} value=${topic.bytes} />, ${plural(topic.partitions, "partition")}${topic.cleanup_policy !== "delete" ? html` <${Badge} plain>${topic.cleanup_policy}<//>` : ""}${topic.is_internal ? html` <${Badge} plain tone="accent">internal<//>` : ""}` : "\u00a0"}
    >
      ${actions?.length > 0 && html`<${Menu} label="Actions" icon="more" actions=${actions} />`}
    <//>
    ${error && error.status !== 404 && html`<${Failure} error=${error} again=${refresh} what="The topic" />`}
    <${Tabs}
      label=${`Parts of ${name}`}
      current=${TABS[tab] ? tab : "messages"}
      tabs=${Object.entries(TABS).map(([key, [text]]) => [key, text, key === "messages" ? pathOf("topics", name) : pathOf("topics", name, key)])}
    />
    ${topic ? html`<${View} key=${tab} name=${name} topic=${topic} query=${query} refresh=${refresh} />` : null}
    ${asking === "delete" && html`<${Delete} topic=${topic} onClose=${close} />`}
    ${asking === "partitions" && html`<${MorePartitions} topic=${topic} onClose=${close} refresh=${refresh} />`}
    ${asking === "trim" && html`<${Trim} topic=${topic} onClose=${close} refresh=${refresh} />`}
  </div>`;
}
