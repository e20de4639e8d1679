// All consumer groups, of every protocol, with their lag.
import { apiPath } from "../api";
import { useSettled } from "../live";
import { Empty, PageHead, Search } from "../parts";
import { useLocation } from "../router";
import { LongTable } from "../tables";
import { CONSUMER_COLUMNS } from "./consumer_columns";

export default function Consumers() {
  const { query } = useLocation();
  const search = useSettled(query.search ?? "", 150);
  const nothing = search ? (
    <Empty title="No matching consumer groups">
      Change the search, or <a href="/consumers">show all</a>.
    </Empty>
  ) : (
    <Empty
      title="No consumer groups yet"
      command={
        'from confluent_kafka import Consumer\n\nconsumer = Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "my-group", "auto.offset.reset": "earliest"})\nconsumer.subscribe(["greetings"])\nwhile message := consumer.poll(10):\n    print(message.value())\nconsumer.close()'
      }
    >
      Listed here is everything that commits offsets: Kafka consumer groups, YT and YDB consumers, durable consumers of streams.
    </Empty>
  );
  return (
    <div class="page fill">
      <PageHead title="Consumer groups" />
      <div class="row">
        <Search label="Search consumer groups" value={query.search} />
      </div>
      <LongTable
        label="Consumer groups"
        noun="consumer group"
        columns={CONSUMER_COLUMNS}
        path={apiPath("/consumers")}
        query={{ search }}
        sort={query.sort ?? "lag_messages"}
        order={query.order ?? "desc"}
        at={query.at}
        keyOf={(row) => `${row.kind}:${row.name}`}
        empty={nothing}
      />
    </div>
  );
}
