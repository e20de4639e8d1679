// One pipeline: how it is doing now and over time, what it does, its dead letters, and if it is deployed, its files and its log.
import { type Schemas, apiPath, isNotFound } from "../api";
import { HistoryChart, type Line, RangeChoice } from "../charts";
import { Ago, Count, Duration, Moment, count, countPerSecond, duration, integer } from "../format";
import { useLive } from "../live";
import { Card, Empty, type Fact, Facts, Failure, Notice, PageHead, State, Tile } from "../parts";
import { href, pathOf, useLocation } from "../router";
import { PipelineActions, ReplayDeadLetters } from "./pipeline_actions";
import { type Deployment, type Pipeline, errorOf, stateOf, text } from "./pipeline_state";

/** Runners are not trusted: only http(s) addresses become links. */
const isAddress = (given: string | null | undefined): given is string => /^https?:\/\//.test(given ?? "");

const TopicLinks = ({ topics }: { topics: string[] }) => (
  <>
    {topics.map((topic, index) => (
      <>
        {index > 0 && ", "}
        <a href={pathOf("topics", topic)}>{topic}</a>
      </>
    ))}
  </>
);

const CHARTS: { title: string; metric: Line["query"]["metric"]; label: string; format: typeof count; unit?: "ms" }[] = [
  { title: "Rows", metric: "pipeline_rows", label: "read", format: countPerSecond },
  { title: "Lag", metric: "pipeline_lag", label: "rows", format: count },
  { title: "Batch duration", metric: "pipeline_batch_ms", label: "last batch", format: duration, unit: "ms" },
  { title: "Dead letters", metric: "pipeline_dead_letters", label: "in this run", format: count },
];

const Charts = ({ name }: { name: string }) => {
  const { query } = useLocation();
  const range = query.range ?? "10m";
  return (
    <>
      <div class="row">
        <RangeChoice value={range} />
      </div>
      <div class="grid">
        {CHARTS.map(({ title, metric, label, format, unit }) => (
          <HistoryChart
            key={metric}
            title={title}
            range={range}
            format={format}
            {...(unit ? { unit } : {})}
            none="No history: it has not run lately, or there are more pipelines than are recorded."
            lines={[{ query: { metric, pipeline: name }, label }]}
          />
        ))}
      </div>
    </>
  );
};

const deploymentFacts = (deployment: Deployment): Fact[] => [
  ["Deployed", <Moment value={deployment.deployed_ms} />],
  ["By", deployment.deployed_by],
  ["Version", integer(deployment.version)],
  ["Wanted", deployment.wanted],
  ["Restarts", `${integer(deployment.restarts)} since the node started`],
  ...(deployment.retry_ms ? [["Next attempt", <Moment value={deployment.retry_ms} />] as const] : []),
  ["Application", deployment.application || "its own"],
  ["Master", deployment.master ?? "this machine"],
  ["Driver", deployment.pid === null ? "not running" : `process ${deployment.pid}`],
  ["From", <code class="wrap">{`${deployment.directory}/${deployment.file}`}</code>],
];

const DeadLetters = ({ topic }: { topic: string }) => {
  const { data, error } = useLive(apiPath("/topics/{name}/messages", { name: topic }), { limit: 5 }, { every: 10000 });
  if (isNotFound(error)) return <p class="muted">None so far: the topic {topic} does not exist yet.</p>;
  if (!data) return <Failure error={error} what="Dead letters" />;
  return data.items.length === 0 ? (
    <p class="muted">None in {topic}.</p>
  ) : (
    <Facts
      of={data.items.map((message): Fact => {
        const told = reasonOf(message);
        return [told.place, <span class="wrap">{told.reason}</span>];
      })}
    />
  );
};

function reasonOf(message: Schemas["MessageView"]): { place: string; reason: string } {
  const headers = new Map(message.headers.map(({ name, value }) => [name, text(value.data)] as const));
  const place = `${headers.get("penstock.topic") ?? "?"}-${headers.get("penstock.partition") ?? "?"}`;
  return { place: `${place} at ${headers.get("penstock.offset") ?? "?"}`, reason: headers.get("penstock.reason") ?? "unknown" };
}

const Files = ({ name, version }: { name: string; version: number }) => {
  const { data, error } = useLive(apiPath("/pipelines/{name}/files", { name }), {}, { every: 0 });
  return (
    <div key={version}>
      <Failure error={error} what="The files" />
      {data &&
        Object.entries(data.files).map(([path, content]) => (
          <details key={path} open={Object.keys(data.files).length === 1}>
            <summary>{path}</summary>
            <pre class="plain-text scrolled">{content}</pre>
          </details>
        ))}
    </div>
  );
};

const Log = ({ name }: { name: string }) => {
  const { data, error } = useLive(apiPath("/pipelines/{name}/log", { name }), { limit: 16384 }, { every: 5000 });
  return (
    <>
      <Failure error={error} what="The log" />
      {data && <pre class="plain-text scrolled">{data.text || "Nothing yet."}</pre>}
    </>
  );
};

const Tiles = ({ pipeline }: { pipeline: Pipeline }) => {
  const letters = pipeline.deployment?.dead_letter_topic;
  return (
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
      <Tile
        label="Dead letters"
        note="rows that could not be processed"
        {...(letters && pipeline.dead_letters ? { href: href(pathOf("topics", letters, "messages")) } : {})}
      >
        <Count value={pipeline.dead_letters} />
      </Tile>
      <Tile label="Late rows" note="dropped by the watermark">
        <Count value={pipeline.late_rows} />
      </Tile>
      <Tile label="Empty rows" note="without any field of the schema">
        <Count value={pipeline.empty_rows} />
      </Tile>
    </div>
  );
};

const Notices = ({ pipeline }: { pipeline: Pipeline }) => {
  const error = errorOf(pipeline);
  return (
    <>
      {stateOf(pipeline) === "silent" && (
        <Notice tone="warn" title="No recent report">
          It was killed, or cannot reach this broker. Check its log on {pipeline.host}, or restart it: it continues from its last
          commit.
        </Notice>
      )}
      {!!error && (
        <Notice tone="bad" title="Last error" role="note">
          <pre class="error-text">{text(error)}</pre>
        </Notice>
      )}
    </>
  );
};

export const PipelinePage = ({ name }: { name: string }) => {
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
          No pipeline of this name is deployed or has reported here. <a href="/pipelines">All pipelines</a>
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
  const { deployment } = pipeline;
  const sources = deployment?.source_topics ?? [];
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
        {deployment && <PipelineActions name={name} deployment={deployment} onDone={refresh} />}
      </PageHead>
      <Failure error={error} again={refresh} what="The pipeline" />
      <Notices pipeline={pipeline} />
      <Tiles pipeline={pipeline} />
      <Charts name={name} />
      <div class="grid">
        <Card title="Definition">
          <Facts
            of={[
              ["Source", sources.length ? <TopicLinks topics={sources} /> : <pre class="plain-text">{text(pipeline.source)}</pre>],
              [
                "Target",
                deployment?.target_topic ? (
                  <TopicLinks topics={[deployment.target_topic]} />
                ) : (
                  <pre class="plain-text">{text(pipeline.target)}</pre>
                ),
              ],
              ["Plan", <pre class="plain-text">{text(pipeline.plan)}</pre>],
              ["Trigger", text(pipeline.trigger)],
            ]}
          />
        </Card>
        <Card title="Current run">
          <Facts
            of={[
              ["Host", pipeline.host ? `${pipeline.host}, process ${pipeline.pid}` : "–"],
              ["User", text(pipeline.user)],
              ["File", <code class="wrap">{text(pipeline.file)}</code>],
              ["Run", <code class="wrap">{text(pipeline.run)}</code>],
              ["Started", <Moment value={pipeline.started_ms} />],
              ["Last report", <Ago value={pipeline.updated_ms} />],
            ]}
          />
        </Card>
        {deployment && (
          <Card title="Deployment">
            <Facts of={deploymentFacts(deployment)} />
          </Card>
        )}
        {deployment?.dead_letter_topic && (
          <Card
            title="Dead letters"
            actions={
              <span class="row">
                <a class="button small" href={pathOf("topics", deployment.dead_letter_topic, "messages")}>
                  Messages
                </a>
                <ReplayDeadLetters name={name} deployment={deployment} onDone={refresh} />
              </span>
            }
          >
            <DeadLetters topic={deployment.dead_letter_topic} />
          </Card>
        )}
      </div>
      {deployment && (
        <>
          <Card title="Files">
            <Files name={name} version={deployment.version} />
          </Card>
          <Card title="Log">
            <Log name={name} />
          </Card>
        </>
      )}
    </div>
  );
};
