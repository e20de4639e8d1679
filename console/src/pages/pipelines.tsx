// Spark pipelines: state, throughput, lag and last error.
import { apiPath } from "../api";
import { Count, CountRate, Duration } from "../format";
import { useLive } from "../live";
import { Bone, Empty, Failure, PageHead, State } from "../parts";
import { pathOf, useLocation } from "../router";
import { type Column, Table } from "../tables";
import { PipelinePage } from "./pipeline";
import { type Pipeline, errorOf, stateOf, text } from "./pipeline_state";

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
    show: (pipeline) => <Duration value={pipeline.batches ? pipeline.last_batch_ms : null} />,
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
      errorOf(pipeline) ? (
        <span class="clip error-clip bad-text" title={text(errorOf(pipeline))}>
          {text(errorOf(pipeline))}
        </span>
      ) : (
        <span class="muted">none</span>
      ),
  },
];

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
            <Empty
              title="No pipelines have run yet"
              command={"penstock pipeline init export\npenstock pipeline deploy export.yaml"}
            >
              A pipeline is one file: from topics to tables or other topics, on Spark, exactly once. A deployed one is kept running
              by this node; penstock pipeline run runs one in a terminal.
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
