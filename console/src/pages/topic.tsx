// One topic: header, actions and tabs. Each tab is a module of its own.
import type { ComponentType } from "preact";
import { useState } from "preact/hooks";
import { type Schemas, apiPath, isNotFound, post, remove } from "../api";
import { Confirm, FormDialog, say } from "../dialogs";
import { Bytes, Count, bytes, plural } from "../format";
import { forget, useLive } from "../live";
import { Badge, Empty, Failure, Menu, type MenuAction, PageHead, Tabs, useId } from "../parts";
import { type Place, navigate, pathOf, useLocation } from "../router";
import { useRights } from "../rights";
import { useCluster } from "../shell";
import { command, quoted } from "../snippets";
import { QueueView } from "./queue_view";
import { CloneTopic } from "./topic_clone";
import { Configuration } from "./topic_config";
import { TopicConsumers } from "./topic_consumers";
import { Messages } from "./topic_messages";
import { HistoryTab } from "./topic_metrics";
import { Partitions } from "./topic_partitions";

type TopicInfo = Schemas["TopicView"];

interface TabProps {
  name: string;
  topic: TopicInfo;
  query: Place["query"];
  refresh: () => void;
}

const TABS = {
  messages: ["Messages", Messages],
  partitions: ["Partitions", Partitions],
  consumers: ["Consumer groups", TopicConsumers],
  queue: ["Queue", QueueView],
  config: ["Configuration", Configuration],
  metrics: ["Metrics", HistoryTab],
} satisfies Record<string, [text: string, View: ComponentType<TabProps>]>;
const isTab = (key: string): key is keyof typeof TABS => Object.hasOwn(TABS, key);

interface DialogProps {
  topic: TopicInfo;
  onClose: () => void;
  refresh: () => void;
}

const Delete = ({ topic, onClose }: Omit<DialogProps, "refresh">) => (
  <Confirm
    title={`Delete topic ${topic.name}?`}
    typed={topic.name}
    verb="Delete"
    onClose={onClose}
    act={async () => {
      await remove(apiPath("/topics/{name}", { name: topic.name }));
      forget("/topics");
      say(`Topic ${topic.name} was deleted.`);
      navigate("/topics");
    }}
    touches={
      <>
        This deletes <strong>{plural(topic.partitions, "partition")}</strong> with{" "}
        <strong>{plural(topic.messages, "message")}</strong> ({bytes(topic.bytes)}) and the committed offsets of{" "}
        <strong>{plural(topic.consumers, "consumer group")}</strong> in it. This cannot be undone.
      </>
    }
  />
);

const MorePartitions = ({ topic, onClose, refresh }: DialogProps) => {
  const [total, setTotal] = useState(String(topic.partitions + 1));
  const id = useId();
  const add = async () => {
    await post(apiPath("/topics/{name}/partitions", { name: topic.name }), { total: Number(total) });
    say(`${topic.name} has ${total} partitions now.`);
    refresh();
  };
  return (
    <FormDialog
      title={`Add partitions to ${topic.name}`}
      verb="Add partitions"
      ready={Number(total) > topic.partitions}
      send={add}
      onClose={onClose}
    >
      <p>
        The topic has {plural(topic.partitions, "partition")}. Existing messages stay where they are; new messages of a key may go to
        another partition than older ones. The number of partitions can never be lowered.
      </p>
      <div class="field">
        <label for={id}>Total partitions</label>
        <input
          id={id}
          class="input"
          data-first
          type="number"
          min={topic.partitions + 1}
          max="100000"
          value={total}
          onInput={(event) => setTotal(event.currentTarget.value)}
        />
      </div>
    </FormDialog>
  );
};

const Purge = ({ topic, onClose, refresh }: DialogProps) => (
  <Confirm
    title={`Delete all messages of ${topic.name}?`}
    typed={topic.name}
    verb="Delete messages"
    onClose={onClose}
    act={async () => {
      const { deleted } = await post(apiPath("/topics/{name}/purge", { name: topic.name }));
      say(`${plural(deleted, "message")} of ${topic.name} deleted.`);
      refresh();
    }}
    touches={
      <>
        <p>
          This deletes <strong>{plural(topic.messages, "message")}</strong> ({bytes(topic.bytes)}) in{" "}
          {plural(topic.partitions, "partition")}, and what is produced until then.
        </p>
        <p>Offsets continue from there; the topic, its configuration and its consumer groups stay. This cannot be undone.</p>
      </>
    }
  />
);

export default function Topic() {
  const { segments, query } = useLocation();
  const [, name = "", tab = "messages"] = segments;
  const { data: topic, error, refresh } = useLive(apiPath("/topics/{name}", { name }));
  const refusal = useRights("topic", name);
  const [onCluster, onTopics] = [useRights("cluster"), useRights("topic")];
  const refusedCreate = onCluster("CREATE") && onTopics("CREATE");
  const cluster = useCluster();
  const [asking, setAsking] = useState<"delete" | "partitions" | "purge" | "clone" | null>(null);
  const close = () => setAsking(null);
  const crumbs = (
    <>
      <a href="/topics">Topics</a> /
    </>
  );
  if (isNotFound(error)) {
    return (
      <div class="page">
        <PageHead title={name} crumbs={crumbs} />
        <Empty title="There is no such topic" command={command(cluster, `penstock topic create ${quoted(name)}`)}>
          It was deleted, or never created. <a href="/topics">All topics</a>
        </Empty>
      </div>
    );
  }
  const shown = isTab(tab) ? tab : "messages";
  const View: ComponentType<TabProps> = TABS[shown][1];
  const actions: MenuAction[] = [
    { text: "Add partitions…", act: () => setAsking("partitions"), icon: "plus", refused: refusal("ALTER") },
    { text: "Clone topic…", act: () => setAsking("clone"), icon: "copy", refused: refusedCreate },
    { text: "Delete all messages…", act: () => setAsking("purge"), danger: true, icon: "close", refused: refusal("DELETE") },
    { text: "Delete topic…", act: () => setAsking("delete"), danger: true, icon: "trash", refused: refusal("DELETE") },
  ];
  return (
    <div class="page">
      <PageHead
        title={name}
        crumbs={crumbs}
        note={
          topic ? (
            <>
              <Count value={topic.messages} /> {topic.messages === 1 ? "message" : "messages"}, <Bytes value={topic.bytes} />, {plural(topic.partitions, "partition")}
              {topic.cleanup_policy !== "delete" ? (
                <>
                  {" "}
                  <Badge plain>{topic.cleanup_policy}</Badge>
                </>
              ) : (
                ""
              )}
              {topic.is_internal ? (
                <>
                  {" "}
                  <Badge plain tone="accent">
                    internal
                  </Badge>
                </>
              ) : (
                ""
              )}
            </>
          ) : (
            "\u00a0"
          )
        }
      >
        {topic && !topic.is_internal && <Menu label="Actions" icon="more" actions={actions} />}
      </PageHead>
      <Failure error={error} again={refresh} what="The topic" />
      <Tabs
        label={`Views of ${name}`}
        current={shown}
        tabs={Object.entries(TABS).map(([key, [text]]) => [
          key,
          text,
          key === "messages" ? pathOf("topics", name) : pathOf("topics", name, key),
        ])}
      />
      {topic ? <View key={tab} name={name} topic={topic} query={query} refresh={refresh} /> : null}
      {topic && asking === "delete" && <Delete topic={topic} onClose={close} />}
      {topic && asking === "partitions" && <MorePartitions topic={topic} onClose={close} refresh={refresh} />}
      {topic && asking === "purge" && <Purge topic={topic} onClose={close} refresh={refresh} />}
      {topic && asking === "clone" && <CloneTopic topic={topic} onClose={close} />}
    </div>
  );
}
