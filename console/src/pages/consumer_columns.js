// How consumers and their lag are shown, wherever they are listed.
import { html } from "../preact.js";
import { Bytes, Count, Seconds, Share, percent } from "../format.js";
import { Badge, Meter, State } from "../parts.js";
import { pathOf } from "../router.js";

const KINDS = { kafka: "Kafka group", yt: "YT consumer", ydb: "YDB consumer", stream: "stream reader" };
export const kindText = (kind) => KINDS[kind] ?? kind;

/** How much of the time or room that unread messages are kept for is used up: at 100 % they are lost unread. */
export const RetentionShare = ({ value }) =>
  value === null || value === undefined
    ? html`<span class="muted">–</span>`
    : html`<span
        class="share"
        title=${`The first unread message has used up ${percent(value)} of its retention; at 100 % it is deleted unread.`}
        ><${Meter} share=${value} label="Share of retention used up" /><${Share} value=${value}
      /></span>`;

export const LAG_COLUMNS = [
  {
    key: "lag_messages",
    title: "Lag",
    end: true,
    sorts: true,
    width: "98px",
    about: "messages not read yet",
    show: (one) => html`<${Count} value=${one.lag_messages} />`,
  },
  {
    key: "lag_bytes",
    title: "Bytes",
    end: true,
    wide: true,
    sorts: true,
    width: "104px",
    about: "bytes not read yet",
    show: (one) => html`<${Bytes} value=${one.lag_bytes} />`,
  },
  {
    key: "lag_seconds",
    title: "Time",
    end: true,
    sorts: true,
    width: "98px",
    about: "how long the oldest unread message has waited",
    show: (one) => html`<${Seconds} value=${one.lag_seconds} />`,
  },
  {
    key: "retention_share",
    title: "Of retention",
    wide: true,
    sorts: true,
    width: "150px",
    about: "how much of their retention the oldest unread messages have used up",
    show: (one) => html`<${RetentionShare} value=${one.retention_share} />`,
  },
];

export const CONSUMER_COLUMNS = [
  {
    key: "name",
    title: "Name",
    sorts: true,
    show: (one) =>
      html`<a class="name-link clip" data-row href=${pathOf("consumers", one.name)} title=${one.name}>${one.name}</a>`,
  },
  { key: "kind", title: "Kind", wide: true, width: "126px", show: (one) => kindText(one.kind) },
  {
    key: "state",
    title: "State",
    wide: true,
    width: "150px",
    show: (one) =>
      html`<${State}
          of=${one.state}
        />${one.vital && html` <${Badge} plain tone="accent" title="What it has not read is not trimmed">vital<//>`}`,
  },
  {
    key: "members",
    title: "Members",
    end: true,
    wide: true,
    sorts: true,
    width: "96px",
    show: (one) => html`<${Count} value=${Array.isArray(one.members) ? one.members.length : one.members} />`,
  },
  ...LAG_COLUMNS,
];
