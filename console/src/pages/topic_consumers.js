// Who reads a topic.
import { html } from "../preact.js";
import { apiPath } from "../api.js";
import { useLive } from "../live.js";
import { Bone, Card, Empty, Failure } from "../parts.js";
import { Table } from "../tables.js";
import { CONSUMER_COLUMNS } from "./consumer_columns.js";

export const Readers = ({ name }) => {
  const { data, error, refresh } = useLive(apiPath("topics", name, "consumers"), { limit: 500 });
  return html`<div class="stack">
    <${Failure} error=${error} again=${refresh} what="Consumers" />
    <${Card} bare label="Consumers"
      >${
        data === null
          ? html`<div class="card-body"><${Bone} width="50%" /></div>`
          : data.items.length
            ? html`<${Table}
                label=${`Consumers of ${name}`}
                columns=${CONSUMER_COLUMNS}
                rows=${data.items}
                keyOf=${(one) => one.name}
                start=${["lag_messages", "desc"]}
              />`
            : html`<${Empty} title="Nobody reads this topic" command=${`penstock consume ${name} --follow`}
                >Consumers appear here once they have committed a position. To look at the messages without one:<//
              >`
      }<//
    >
    ${data?.items.length > 0 && html`<p class="small muted">Lag is over all topics that a consumer reads; its own page has it by partition.</p>`}
  </div>`;
};
