// Subjects of the schema registry.
import { useState } from "preact/hooks";
import { type Schemas, apiPath } from "../api";
import { integer } from "../format";
import { Icon } from "../icons";
import { useSettled } from "../live";
import { Badge, Empty, PageHead, Search } from "../parts";
import { navigate, pathOf, useLocation } from "../router";
import { useRights } from "../rights";
import { type Column, LongTable } from "../tables";
import { SchemaForm } from "./schema_form";

const COLUMNS: Column<Schemas["RegistrySubjectView"]>[] = [
  {
    key: "subject",
    title: "Subject",
    show: (row) => (
      <a class="name-link clip" data-row href={pathOf("schemas", row.subject)} title={row.subject}>
        {row.subject}
      </a>
    ),
  },
  { key: "type", title: "Type", width: "96px", show: (row) => <Badge plain>{row.type}</Badge> },
  { key: "latest", title: "Latest version", end: true, width: "112px", show: (row) => integer(row.latest) },
  { key: "schema_id", title: "Schema id", end: true, wide: true, width: "110px", show: (row) => integer(row.schema_id) },
  { key: "level", title: "Compatibility", wide: true, width: "190px", show: (row) => row.level },
  {
    key: "topic",
    title: "Topic",
    wide: true,
    show: (row) =>
      row.topic ? (
        <a class="clip" href={pathOf("topics", row.topic)}>
          {row.topic}
        </a>
      ) : (
        <span class="muted">none of that name</span>
      ),
  },
];

export default function SubjectList() {
  const { query } = useLocation();
  const search = useSettled(query.search ?? "", 150);
  const refused = useRights("topic")("WRITE");
  const [isNew, setIsNew] = useState(false);
  const nothing = search ? (
    <Empty title="No matching subjects">
      Change the search, or <a href="/schemas">show all</a>.
    </Empty>
  ) : (
    <Empty title="No schemas yet" command="penstock schema register orders-value order.avsc">
      Serializers register schemas by themselves; a file is registered so:
    </Empty>
  );
  return (
    <div class="page fill">
      <PageHead title="Schemas" note="Subjects of the schema registry: Avro, JSON Schema and Protobuf.">
        <button
          type="button"
          class="button primary"
          disabled={Boolean(refused)}
          title={refused ?? undefined}
          onClick={() => setIsNew(true)}
        >
          <Icon name="plus" />
          Register schema
        </button>
      </PageHead>
      <div class="row">
        <Search label="Search subjects" value={query.search} />
      </div>
      <LongTable
        label="Subjects"
        noun="subject"
        columns={COLUMNS}
        path={apiPath("/schemas")}
        query={{ search }}
        at={query.at}
        keyOf={(row) => row.subject}
        empty={nothing}
      />
      {isNew && (
        <SchemaForm onClose={() => setIsNew(false)} onDone={(subject) => navigate(pathOf("schemas", subject))} />
      )}
    </div>
  );
}
