// Spark pipelines: state, throughput, lag and last error.
import { type Schemas, apiPath, isNotFound } from "../api";
import { Ago, Count, CountRate, Duration, Moment, integer } from "../format";
import { useLive } from "../live";
import { Bone, Card, Empty, Facts, Failure, Notice, PageHead, State, Tile } from "../parts";
import { pathOf, useLocation } from "../router";
import { type Column, Table } from "../tables";

type Pipeline = Schemas["PipelineView"];

const ALIVE: (string | undefined)[] = ["starting", "running", "waiting", "restarting"];
/** A pipeline that stopped reporting without a final state was killed, or cannot reach the broker. */
const stateOf = (pipeline: Pipeline) => (ALIVE.includes(pipeline.state) && !pipeline.is_alive ? "silent" : pipeline.state);
/** Runners are not trusted: only http(s) addresses become links. */
const isAddress = (given: string | null | undefined): given is string => /^https?:\/\//.test(given ?? "");
const text = (value: unknown): string => {
  if (value === null || value === undefined || value === "") return "–";
  if (Array.isArray(value)) return value.length === 0 ? "–" : value.map(text).join("\n");
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
};

const COLUMNS: Column<Pipeline>[] = [
  {
    key: "name",
    title: "Name",
    sorts: true,
    show: (pipeline) => (
      <a class="name-link clip" data-row href={pathOf("pipelines", pipeline.name)}>
        {pipeline.name}
      </a>
    ),
  },
  { key: "kind", title: "Kind", wide: true, sorts: true, show: (pipeline) => pipeline.kind },
  {
    key: "flow",
    title: "From, to",
    wide: "widest",
    show: (pipeline) => (
      <>
        <span class="clip" title={text(pipeline.source)}>
          {text(pipeline.source)}
        </span>
        <span class="clip muted" title={text(pipeline.target)}>
          {text(pipeline.target)}
        </span>
      </>
    ),
  },
  { key: "state", title: "State", sorts: stateOf, show: (pipeline) => <State of={stateOf(pipeline)} /> },
  { key: "rows_per_s", title: "Rows/s", end: true, sorts: true, show: (pipeline) => <CountRate value={pipeline.rows_per_s} /> },
  {
    key: "last_batch_ms",
    title: "Last batch",
    end: true,
    wide: true,
    sorts: true,
    show: (pipeline) => <Duration value={pipeline.last_batch_ms} />,
  },
  { key: "lag_rows", title: "Lag", end: true, sorts: true, show: (pipeline) => <Count value={pipeline.lag_rows} /> },
  {
    key: "rows_written",
    title: "Rows written",
    end: true,
    wide: true,
    sorts: true,
    show: (pipeline) => <Count value={pipeline.rows_written} />,
  },
  {
    key: "dead_letters",
    title: "Dead letters",
    end: true,
    wide: true,
    sorts: true,
    show: (pipeline) => <Count value={pipeline.dead_letters} />,
  },
  {
    key: "last_error",
    title: "Last error",
    wide: true,
    show: (pipeline) =>
      pipeline.last_error ? (
        <span class="clip bad-text" title={text(pipeline.last_error)}>
          {text(pipeline.last_error)}
        </span>
      ) : (
        <span class="muted">none</span>
      ),
  },
];

const PipelinePage = ({ name }: { name: string }) => {
  const { data: pipeline, error, refresh } = useLive(apiPath("/pipelines/{name}", { name }));
  const crumbs = (
    <>
      <a href="/pipelines">Pipelines</a> /
    </>
  );
  if (isNotFound(error))
    return (
      <div class="page">
        <PageHead title={name} crumbs={crumbs} />
        <Empty title="There is no such pipeline">
          No pipeline of this name has reported here. <a href="/pipelines">All pipelines</a>
        </Empty>
      </div>
    );
  if (!pipeline)
    return (
      <div class="page">
        <PageHead title={name} crumbs={crumbs} />
        <Failure error={error} again={refresh} what="The pipeline" />
      </div>
    );
  return (
    <div class="page">
      <PageHead
        title={name}
        crumbs={crumbs}
        note={
          <>
            {pipeline.kind} <State of={stateOf(pipeline)} />
          </>
        }
      >
        {isAddress(pipeline.spark_ui) && (
          <a class="button" href={pipeline.spark_ui} target="_blank" rel="noreferrer">
            Spark UI
          </a>
        )}
      </PageHead>
      <Failure error={error} again={refresh} what="The pipeline" />
      {stateOf(pipeline) === "silent" && (
        <Notice tone="warn" title="No recent report">
          It was killed, or cannot reach this broker. Check its log on {pipeline.host}, or restart it: it continues from its last
          commit.
        </Notice>
      )}
      {pipeline.last_error && (
        <Notice tone="bad" title="Last error" role="note">
          <pre class="error-text">{text(pipeline.last_error)}</pre>
        </Notice>
      )}
      <div class="tiles">
        <Tile label="Rows per second">
          <Count value={pipeline.rows_per_s} />
        </Tile>
        <Tile label="Lag" note="rows not processed yet">
          <Count value={pipeline.lag_rows} />
        </Tile>
        <Tile label="Last batch" note={`${integer(pipeline.batches)} batches`}>
          <Duration value={pipeline.last_batch_ms} />
        </Tile>
        <Tile label="Rows written" note={`${integer(pipeline.rows_read)} read`}>
          <Count value={pipeline.rows_written} />
        </Tile>
        <Tile label="Dead letters" note="rows that could not be processed">
          <Count value={pipeline.dead_letters} />
        </Tile>
        <Tile label="Late rows" note="dropped by the watermark">
          <Count value={pipeline.late_rows} />
        </Tile>
        <Tile label="Empty rows" note="without any field of the schema">
          <Count value={pipeline.empty_rows} />
        </Tile>
      </div>
      <div class="grid">
        <Card title="Definition">
          <Facts
            of={[
              ["Source", <pre class="plain-text">{text(pipeline.source)}</pre>],
              ["Target", <pre class="plain-text">{text(pipeline.target)}</pre>],
              ["Plan", <pre class="plain-text">{text(pipeline.plan)}</pre>],
              ["Trigger", text(pipeline.trigger)],
            ]}
          />
        </Card>
        <Card title="Current run">
          <Facts
            of={[
              ["Host", `${pipeline.host}, process ${pipeline.pid}`],
              ["User", text(pipeline.user)],
              ["File", <code class="wrap">{text(pipeline.file)}</code>],
              ["Run", <code class="wrap">{text(pipeline.run)}</code>],
              ["Started", <Moment value={pipeline.started_ms} />],
              ["Last report", <Ago value={pipeline.updated_ms} />],
            ]}
          />
        </Card>
      </div>
    </div>
  );
};

const List = () => {
  const { data, error, refresh } = useLive(apiPath("/pipelines"), { limit: 500 });
  return (
    <div class="page">
      <PageHead title="Pipelines" />
      <Failure error={error} again={refresh} what="Pipelines" />
      {data === null ? (
        !error && (
          <div class="card card-body">
            <Bone width="60%" />
          </div>
        )
      ) : (
        <div class="card">
          {data.items.length ? (
            <Table
              label="Pipelines"
              columns={COLUMNS}
              rows={data.items}
              keyOf={(pipeline) => pipeline.name}
              start={["name", "asc"]}
            />
          ) : (
            <Empty title="No pipelines have run yet" command={"penstock pipeline init export\npenstock pipeline run export.yaml"}>
              A pipeline is one file: from topics to tables or other topics, on Spark, exactly once. It reports here while it
              runs.
            </Empty>
          )}
        </div>
      )}
    </div>
  );
};

export default function Pipelines() {
  const { segments } = useLocation();
  return segments[1] ? <PipelinePage name={segments[1]} /> : <List />;
}
