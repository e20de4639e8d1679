// All consumers, of every kind, with how far they are behind.
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
    <Empty title="No consumer has this in its name">
      Search for less, or <a href="/consumers">show all</a>.
    </Empty>
  ) : (
    <Empty
      title="No consumers yet"
      command={
        'from confluent_kafka import Consumer\n\nconsumer = Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "my-group", "auto.offset.reset": "earliest"})\nconsumer.subscribe(["greetings"])\nwhile message := consumer.poll(10):\n    print(message.value())\nconsumer.close()'
      }
    >
      A consumer is anything that keeps its position here: a group of a Kafka client, a YT consumer, a reader of a stream.
    </Empty>
  );
  return (
    <div class="page fill">
      <PageHead title="Consumers" />
      <div class="row">
        <Search label="Search consumers" value={query.search} />
      </div>
      <LongTable
        label="Consumers"
        noun="consumer"
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
