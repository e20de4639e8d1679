// The consumer groups of a topic.
import { apiPath } from "../api";
import { useLive } from "../live";
import { Bone, Card, Empty, Failure } from "../parts";
import { useCluster } from "../shell";
import { command, quoted } from "../snippets";
import { Table } from "../tables";
import { CONSUMER_COLUMNS } from "./consumer_columns";

export const TopicConsumers = ({ name }: { name: string }) => {
  const cluster = useCluster();
  const { data, error, refresh } = useLive(apiPath("/topics/{name}/consumers", { name }), { limit: 500 });
  return (
    <div class="stack">
      <Failure error={error} again={refresh} what="Consumer groups" />
      <Card bare label="Consumer groups">
        {data === null ? (
          <div class="card-body">
            <Bone width="50%" />
          </div>
        ) : data.items.length ? (
          <Table
            label={`Consumer groups of ${name}`}
            columns={CONSUMER_COLUMNS}
            rows={data.items}
            keyOf={(row) => row.name}
            start={["lag_messages", "desc"]}
          />
        ) : (
          <Empty title="No consumer groups" command={command(cluster, `penstock consume ${quoted(name)} --follow`)}>
            Groups appear here once they have committed an offset. To read the messages without a group:
          </Empty>
        )}
      </Card>
      {data !== null && data.items.length > 0 && (
        <p class="small muted">Lag is the sum over all topics of a group; the group's page shows it by partition.</p>
      )}
    </div>
  );
};
