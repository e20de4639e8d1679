// One subject of the schema registry: a version of it, or what changed between two.
import { useEffect, useState } from "preact/hooks";
import { type Schemas, apiPath, errorOf, isNotFound } from "../api";
import { Confirm, say } from "../dialogs";
import { Diff } from "../diff";
import { integer } from "../format";
import { Icon } from "../icons";
import { forget, useLive } from "../live";
import { Bone, Card, CopyButton, Empty, Failure, type FieldEvent, Menu, PageHead, Tile, useId } from "../parts";
import { type SchemaType, deleteSubject, deleteVersion, fetchVersion, readable, setLevel } from "../registry";
import { navigate, pathOf, setQuery, useLocation } from "../router";
import { useRights } from "../rights";
import { type Column, Table } from "../tables";
import { SchemaForm } from "./schema_form";

const LEVELS = ["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"];
const CHECKED: Partial<Record<string, string>> = {
  none: "nothing: any bytes are taken",
  id: "that messages name a schema of the subject",
  full: "that messages match their schema",
};
const USES: Column<Schemas["SchemaUseView"]>[] = [
  {
    key: "topic",
    title: "Topic",
    show: (row) => (
      <a class="name-link clip" href={pathOf("topics", row.topic)}>
        {row.topic}
      </a>
    ),
  },
  { key: "part", title: "For its", width: "120px", show: (row) => (row.part === "record" ? "records" : `${row.part}s`) },
  { key: "validation", title: "The broker checks", wide: true, show: (row) => CHECKED[row.validation] ?? row.validation },
];

type Version = Awaited<ReturnType<typeof fetchVersion>>;

/** A version of a subject; null if none is asked for. While one is fetched, it is the one before: the page must not jump. */
function useVersion(subject: string, version: number | null): [version: Version | null, error: Error | null] {
  const [state, setState] = useState<{ subject: string; found: Version | null; error: Error | null } | null>(null);
  useEffect(() => {
    let wanted = true;
    if (version === null) return undefined;
    fetchVersion(subject, version).then(
      (found) => wanted && setState({ subject, found, error: null }),
      (failure: unknown) => wanted && setState({ subject, found: null, error: errorOf(failure) }),
    );
    return () => {
      wanted = false;
    };
  }, [subject, version]);
  return version !== null && state?.subject === subject ? [state.found, state.error] : [null, null];
}

interface ChoiceProps {
  label: string;
  versions: Schemas["SchemaVersionView"][];
  value: number | null;
  /** What stands for no version. */
  nothing?: string;
  onChoose: (version: string | null) => void;
}

const VersionChoice = ({ label, versions, value, nothing, onChoose }: ChoiceProps) => {
  const id = useId();
  return (
    <div class="field inline">
      <label for={id}>{label}</label>
      <select
        id={id}
        class="select"
        value={value ?? ""}
        onChange={(event: FieldEvent) => onChoose(event.currentTarget.value || null)}
      >
        {nothing && <option value="">{nothing}</option>}
        {versions.map(({ version, schema_id }) => (
          <option key={version} value={version}>
            {version} (id {schema_id})
          </option>
        ))}
      </select>
    </div>
  );
};

const LevelChoice = ({ detail, refused, onDone }: { detail: Schemas["RegistrySubjectDetail"]; refused: string | null; onDone: () => void }) => {
  const id = useId();
  const [error, setError] = useState<Error | null>(null);
  const choose = async (level: string | null) => {
    setError(null);
    try {
      await setLevel(detail.subject, level);
      say(level ? `The level is ${level}.` : "The subject has the level of all.");
      onDone();
    } catch (failure) {
      setError(errorOf(failure));
    }
  };
  return (
    <>
      <div class="field inline">
        <label class="spoken" for={id}>
          Compatibility level
        </label>
        <select
          id={id}
          class="select"
          value={detail.level_is_own ? detail.level : ""}
          disabled={Boolean(refused)}
          title={refused ?? undefined}
          onChange={(event: FieldEvent) => choose(event.currentTarget.value || null)}
        >
          <option value="">{detail.level_is_own ? "the global level" : `${detail.level} (global)`}</option>
          {LEVELS.map((level) => (
            <option key={level} value={level}>
              {level}
            </option>
          ))}
        </select>
      </div>
      <Failure error={error} />
    </>
  );
};

type Opened = "new" | "delete-version" | "delete" | null;

export default function SubjectPage() {
  const { segments, query } = useLocation();
  const subject = segments[1] ?? "";
  const { data, error, refresh } = useLive(apiPath("/schemas/{subject}", { subject }), {}, { every: 10000 });
  const latest = data?.versions[0]?.version ?? null;
  const version = query.version ? Number(query.version) : latest;
  const against = query.against ? Number(query.against) : null;
  const [shown, failure] = useVersion(subject, version);
  const [before, beforeFailure] = useVersion(subject, against);
  const [opened, open] = useState<Opened>(null);
  const refusal = useRights("topic", data?.guarded_by ?? subject);
  const type = (shown?.schemaType ?? "AVRO") as SchemaType;
  const crumbs = (
    <>
      <a href="/schemas">Schemas</a> /
    </>
  );
  if (isNotFound(error))
    return (
      <div class="page">
        <PageHead title={subject} crumbs={crumbs} />
        <Empty title="There is no such subject">
          It was deleted, or never registered. <a href="/schemas">All subjects</a>
        </Empty>
      </div>
    );
  const changed = () => {
    forget("/schemas");
    setQuery({ version: null, against: null });
    refresh();
  };
  const text = shown && readable(shown.schema, type);
  const isShown = Boolean(shown ?? failure) && Boolean(against === null || (before ?? beforeFailure));
  return (
    <div class="page">
      <PageHead title={subject} crumbs={crumbs}>
        <button
          type="button"
          class="button primary"
          disabled={Boolean(refusal("WRITE")) || !shown}
          title={refusal("WRITE") ?? undefined}
          onClick={() => open("new")}
        >
          <Icon name="plus" />
          New version
        </button>
        <Menu
          label="More"
          icon="more"
          actions={[
            { text: "Delete version…", act: () => open("delete-version"), danger: true, refused: refusal("DELETE") },
            { text: "Delete subject…", act: () => open("delete"), danger: true, refused: refusal("DELETE") },
          ]}
        />
      </PageHead>
      <Failure error={error} again={refresh} what="The subject" />
      <section class="tiles" aria-label="About the subject">
        <Tile label="Type">{data ? data.type : <Bone width="80px" />}</Tile>
        <Tile label="Versions" note={data ? `the newest is ${integer(Math.max(...data.versions.map((item) => item.version)))}` : undefined}>
          {data ? integer(data.versions.length) : <Bone width="80px" />}
        </Tile>
        <Tile label="Mode">{data ? data.mode : <Bone width="80px" />}</Tile>
        <div class="card tile">
          <span class="label">Compatibility</span>
          {data ? <LevelChoice detail={data} refused={refusal("ALTER_CONFIGS")} onDone={changed} /> : <Bone width="80px" />}
          <span class="note">of new versions with earlier ones</span>
        </div>
      </section>
      <Card
        title={against === null ? "Schema" : "Changes"}
        actions={
          data && (
            <div class="row">
              <VersionChoice label="Version" versions={data.versions} value={version} onChoose={(chosen) => setQuery({ version: chosen }, { replace: false })} />
              <VersionChoice
                label="Compared with"
                nothing="nothing"
                versions={data.versions.filter((other) => other.version !== version)}
                value={against}
                onChoose={(chosen) => setQuery({ against: chosen }, { replace: false })}
              />
              {text && <CopyButton text={text} label="Copy" />}
            </div>
          )
        }
      >
        <Failure error={failure ?? beforeFailure} what="The schema" />
        {text && before && against !== null ? (
          <Diff before={readable(before.schema, type)} after={text} label={`Changes from version ${against} to ${version}`} />
        ) : (
          <pre class="value" tabindex={0} role="region" aria-label="Text of the schema">
            {text ?? ""}
          </pre>
        )}
        {shown?.references?.map((reference) => (
          <p key={reference.name} class="small">
            {reference.name}: <a href={pathOf("schemas", reference.subject)}>{reference.subject}</a>, version{" "}
            {integer(reference.version)}
          </p>
        ))}
      </Card>
      {data && isShown && (
        <Card title="Used by" bare>
          {data.uses.length ? (
            <Table label="Topics" columns={USES} rows={data.uses} keyOf={(row) => row.topic} />
          ) : (
            <Empty title="No topic of that name">A topic is found by the name of the subject: TOPIC-value, TOPIC-key or TOPIC-RECORD.</Empty>
          )}
        </Card>
      )}
      {opened === "new" && (
        <SchemaForm subject={subject} text={text ?? ""} type={type} references={shown?.references} onClose={() => open(null)} onDone={changed} />
      )}
      {opened === "delete-version" && version !== null && (
        <Confirm
          title={`Delete version ${version}`}
          touches={`Version ${version} of ${subject} is not offered to producers any more. Messages that name it stay readable.`}
          verb="Delete"
          act={async () => {
            await deleteVersion(subject, version);
            say(`Version ${version} is deleted.`);
            changed();
          }}
          onClose={() => open(null)}
        />
      )}
      {opened === "delete" && (
        <Confirm
          title="Delete subject"
          touches={`All versions of ${subject} are deleted. Messages that name them stay readable.`}
          typed={subject}
          verb="Delete"
          act={async () => {
            await deleteSubject(subject);
            say(`${subject} is deleted.`);
            forget("/schemas");
            navigate("/schemas");
          }}
          onClose={() => open(null)}
        />
      )}
    </div>
  );
}
