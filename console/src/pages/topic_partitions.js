// The partitions of a topic: what is in each, and how it is stored.
import { html } from "../preact.js";
import { apiPath } from "../api.js";
import { Ago, Bytes, Count, integer } from "../format.js";
import { State } from "../parts.js";
import { href, pathOf } from "../router.js";
import { LongTable } from "../tables.js";

export const Partitions = ({ name, query }) => {
  const columns = [
    {
      key: "partition",
      title: "Partition",
      width: "96px",
      show: (one) =>
        html`<a
          class="name-link num"
          data-row
          href=${href(pathOf("topics", name), { partition: one.partition })}
          title="Its messages"
          >${one.partition}</a
        >`,
    },
    { key: "state", title: "State", width: "110px", show: (one) => html`<${State} of=${one.state} />` },
    { key: "start", title: "First offset", end: true, wide: true, show: (one) => integer(one.start) },
    { key: "end", title: "Next offset", end: true, show: (one) => integer(one.end) },
    { key: "messages", title: "Messages", end: true, show: (one) => html`<${Count} value=${one.end - one.start} />` },
    { key: "bytes", title: "Size", end: true, show: (one) => html`<${Bytes} value=${one.bytes} />` },
    {
      key: "head_bytes",
      title: "Head",
      end: true,
      wide: true,
      about: "in small pieces that are still gathered",
      show: (one) => html`<${Bytes} value=${one.head_bytes} />`,
    },
    {
      key: "body_bytes",
      title: "Body",
      end: true,
      wide: true,
      about: "in large blobs",
      show: (one) => html`<${Bytes} value=${one.body_bytes} />`,
    },
    {
      key: "leader_epoch",
      title: "Generation",
      end: true,
      wide: true,
      about: "how often its tablet was started; Kafka's clients see it as the leader epoch",
      show: (one) => integer(one.leader_epoch),
    },
    {
      key: "last_append_ms",
      title: "Newest",
      about: "when the newest message was written",
      end: true,
      wide: true,
      show: (one) => html`<${Ago} value=${one.last_append_ms} />`,
    },
  ];
  return html`<div class="list-height">
    <${LongTable}
      label=${`Partitions of ${name}`}
      noun="partition"
      columns=${columns}
      path=${apiPath("topics", name, "partitions")}
      query=${{}}
      at=${query.at}
      keyOf=${(one) => one.partition}
      empty=${null}
    />
  </div>`;
};
