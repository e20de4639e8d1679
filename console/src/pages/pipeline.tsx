// One pipeline: how it is doing now and over time, what it does, its dead letters, and if it is deployed, its files and its log.
import { useEffect, useState } from "preact/hooks";
import { type Schemas, apiPath, isNotFound } from "../api";
import { HistoryChart, type Line, RangeChoice, type Unit } from "../charts";
import { Ago, Count, Duration, Moment, count, countPerSecond, duration, integer, plural } from "../format";
import { useLive } from "../live";
import { Card, CopyButton, Empty, type Fact, Facts, Failure, Notice, PageHead, State, Tile } from "../parts";
import { href, pathOf, useLocation } from "../router";
import { preview } from "../values";
import { PipelineActions, ReplayDeadLetters, ReplayProgress } from "./pipeline_actions";
import { type Deployment, type Pipeline, errorOf, namedTopics, sourceTopics, stateOf, text } from "./pipeline_state";

/** Runners are not trusted: only http(s) addresses become links. */
const isAddress = (given: string | null | undefined): given is string => /^https?:\/\//.test(given ?? "");

const CHARTS: { title: string; metric: Line["query"]["metric"]; label: string; format: typeof count; unit?: Unit }[] = [
  { title: "Rows", metric: "pipeline_rows", label: "read", format: countPerSecond },
  { title: "Lag", metric: "pipeline_lag", label: "rows", format: count, unit: "count" },
  { title: "Batch duration", metric: "pipeline_batch_ms", label: "last batch", format: duration, unit: "ms" },
  { title: "Dead letters", metric: "pipeline_dead_letters", label: "in this run", format: count, unit: "count" },
];

const Charts = ({ name }: { name: string }) => {
  const { query } = useLocation();
  const range = query.range ?? "10m";
  return (
    <>
      <div class="row spread">
        <h2>History</h2>
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
  if (!data) return <Failure error={error} what="Dead letters" />;
  if (data.items.length === 0) return <p class="muted">None in {topic}.</p>;
  return (
    <ul class="letters">
      {data.items.map((message) => {
        const { place, source, reason } = originOf(message);
        return (
          <li key={`${message.partition}-${message.offset}`}>
            <span class="row spread">
              {source ? <a href={source}>{place}</a> : <span>{place}</span>}
              <a class="small" href={href(pathOf("topics", topic), { open: `${message.partition}-${message.offset}` })}>
                <Ago value={message.timestamp} />
              </a>
            </span>
            <span class="small bad-text wrap">{reason}</span>
            <code class="small clip">{preview(message.value, 120)}</code>
          </li>
        );
      })}
    </ul>
  );
};

/** How often the state of a replay is asked for. */
const REPLAY_MS = { idle: 10_000, running: 700 };

interface DeadLetterCardProps {
  name: string;
  deployment: Deployment;
  topic: string;
  refresh: () => void;
}

const DeadLetterCard = ({ name, deployment, topic, refresh }: DeadLetterCardProps) => {
  const [every, setEvery] = useState(REPLAY_MS.idle);
  const replay = useLive(apiPath("/pipelines/{name}/dead-letters/replay", { name }), {}, { every });
  const isRunning = replay.data?.state === "running";
  useEffect(() => setEvery(isRunning ? REPLAY_MS.running : REPLAY_MS.idle), [isRunning]);
  const actions = Boolean(deployment.dead_letter_messages) && (
    <span class="row">
      <a class="button small" href={pathOf("topics", topic)}>
        All {integer(deployment.dead_letter_messages)}
      </a>
      {!isRunning && (
        <ReplayDeadLetters
          name={name}
          deployment={deployment}
          onDone={() => {
            replay.refresh();
            refresh();
          }}
        />
      )}
    </span>
  );
  return (
    <Card title="Latest dead letters" actions={actions}>
      <ReplayProgress replay={replay.data} />
      {deployment.dead_letter_messages ? (
        <DeadLetters topic={topic} />
      ) : (
        <p class="muted">None so far. Rows that cannot be processed go to {topic}.</p>
      )}
    </Card>
  );
};

/** Where a dead letter came from, and why it is one. */
function originOf(message: Schemas["MessageView"]): { place: string; source: string | null; reason: string } {
  const headers = new Map(message.headers.map(({ name, value }) => [name, text(value.data)] as const));
  const [topic, partition, offset] = ["topic", "partition", "offset"].map((key) => headers.get(`penstock.${key}`));
  const isKnown = topic !== undefined && partition !== undefined && offset !== undefined;
  return {
    place: `${topic ?? "?"}, partition ${partition ?? "?"}, offset ${offset ?? "?"}`,
    source: isKnown ? href(pathOf("topics", topic), { partition, start: `offset:${offset}`, open: `${partition}-${offset}` }) : null,
    reason: headers.get("penstock.reason") ?? "unknown",
  };
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
  const dropped = [
    pipeline.late_rows ? `${integer(pipeline.late_rows)} late` : "",
    pipeline.empty_rows ? `${integer(pipeline.empty_rows)} empty` : "",
  ].filter(Boolean);
  return (
    <div class="tiles">
      <Tile label="Rows per second" note={`${integer(pipeline.rows_read)} read`}>
        <Count value={pipeline.rows_per_s} />
      </Tile>
      <Tile label="Lag" note="rows not processed yet">
        <Count value={pipeline.lag_rows} />
      </Tile>
      <Tile label="Last batch" note={plural(pipeline.batches ?? 0, "batch", "batches")}>
        <Duration value={pipeline.batches ? pipeline.last_batch_ms : null} />
      </Tile>
      <Tile label="Rows written" note={dropped.length ? `dropped: ${dropped.join(", ")}` : "none dropped"}>
        <Count value={pipeline.rows_written} />
      </Tile>
      <Tile
        label="Dead letters"
        note="could not be processed"
        {...(letters && pipeline.deployment?.dead_letter_messages ? { href: pathOf("topics", letters) } : {})}
      >
        <Count value={pipeline.dead_letters} />
      </Tile>
    </div>
  );
};

interface StopProps {
  label: string;
  names: string[];
  /** Whether they are topics, which have pages here. */
  linked: boolean;
  tone?: "warn";
}

const Stop = ({ label, names, linked, tone }: StopProps) => (
  <div class={`flow-stop ${tone ?? ""}`}>
    <span class="small muted">{label}</span>
    {names.map((name) =>
      linked ? (
        <a key={name} class="clip" href={pathOf("topics", name)}>
          {name}
        </a>
      ) : (
        <span key={name} class="row nowrap">
          <strong class="clip" title={name}>
            {name}
          </strong>
          <CopyButton text={name} label={`Copy ${name}`} shown={false} plain />
        </span>
      ),
    )}
  </div>
);

/** Where rows come from and where they go, with links. */
const Route = ({ pipeline }: { pipeline: Pipeline }) => {
  const { deployment } = pipeline;
  const sources = sourceTopics(pipeline);
  const target = deployment?.target_topic ?? namedTopics(text(pipeline.target))[0];
  const letters = deployment?.dead_letter_topic;
  return (
    <div class="flow-route" role="group" aria-label="From source to target">
      <Stop label={sources.length > 1 ? "Topics" : sources.length ? "Topic" : "Source"} names={sources.length ? sources : text(pipeline.source).split("\n")} linked={sources.length > 0} />
      <span class="flow-arrow" aria-hidden="true">
        →
      </span>
      <div class="flow-stop self">
        <span class="small muted">{pipeline.kind || "pipeline"}</span>
        <strong class="clip">{pipeline.name}</strong>
      </div>
      <span class="flow-arrow" aria-hidden="true">
        →
      </span>
      <Stop label={target ? "Topic" : "Target"} names={target ? [target] : text(pipeline.target).split("\n")} linked={Boolean(target)} />
      {letters && deployment?.dead_letter_messages !== null && <Stop label="Dead letters" names={[letters]} linked tone="warn" />}
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
      <Route pipeline={pipeline} />
      <Tiles pipeline={pipeline} />
      <Charts name={name} />
      <div class="grid">
        <Card title="Definition">
          <Facts
            of={[
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
          <DeadLetterCard name={name} deployment={deployment} topic={deployment.dead_letter_topic} refresh={refresh} />
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
