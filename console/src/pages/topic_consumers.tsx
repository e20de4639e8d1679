// Who reads a topic.
import { apiPath } from "../api";
import { useLive } from "../live";
import { Bone, Card, Empty, Failure } from "../parts";
import { Table } from "../tables";
import { CONSUMER_COLUMNS } from "./consumer_columns";

export const Readers = ({ name }: { name: string }) => {
  const { data, error, refresh } = useLive(apiPath("/topics/{name}/consumers", { name }), { limit: 500 });
  return (
    <div class="stack">
      <Failure error={error} again={refresh} what="Consumers" />
      <Card bare label="Consumers">
        {data === null ? (
          <div class="card-body">
            <Bone width="50%" />
          </div>
        ) : data.items.length ? (
          <Table
            label={`Consumers of ${name}`}
            columns={CONSUMER_COLUMNS}
            rows={data.items}
            keyOf={(row) => row.name}
            start={["lag_messages", "desc"]}
          />
        ) : (
          <Empty title="Nobody reads this topic" command={`penstock consume ${name} --follow`}>
            Consumers appear here once they have committed a position. To look at the messages without one:
          </Empty>
        )}
      </Card>
      {data !== null && data.items.length > 0 && (
        <p class="small muted">Lag is over all topics that a consumer reads; its own page has it by partition.</p>
      )}
    </div>
  );
};
