// Quotas: how much users and client ids may produce, fetch and change per second.
import { useState } from "preact/hooks";
import { type Schemas, apiPath, isRefused, put } from "../api";
import { Confirm, FormDialog, say } from "../dialogs";
import { bytesPerSecond } from "../format";
import { Icon } from "../icons";
import { forget, useLive } from "../live";
import { Bone, Card, Empty, Failure, Field, useId } from "../parts";
import { useRights } from "../rights";
import { type Column, Table } from "../tables";
import { sizeBytes, sizeText } from "../units";

type Quota = Schemas["QuotaView"];

/** Whom a quota is for, in words. */
function subject({ user, client }: Pick<Quota, "user" | "client">): string {
  const parts: string[] = [];
  if (user !== null) parts.push(user ? `user ${user}` : "all other users");
  if (client !== null) parts.push(client ? `client id ${client}` : "all other client ids");
  return parts.join(", ");
}

type Scope = "any" | "all" | "one";

interface NameChoiceProps {
  label: string;
  others: string;
  scope: Scope;
  name: string;
  disabled: boolean;
  onChange: (scope: Scope, name: string) => void;
}

/** A name, all others without a quota of their own, or any. */
const NameChoice = ({ label, others, scope, name, disabled, onChange }: NameChoiceProps) => {
  const [scopeId, nameId] = [useId(), useId()];
  return (
    <div class="field-pair">
      <Field id={scopeId} label={label}>
        <select
          id={scopeId}
          class="select"
          value={scope}
          disabled={disabled}
          onChange={(event) => onChange(event.currentTarget.value as Scope, name)}
        >
          <option value="any">any</option>
          <option value="one">named</option>
          <option value="all">{others}</option>
        </select>
      </Field>
      {scope === "one" && (
        <Field id={nameId} label="Name">
          <input
            id={nameId}
            class="input mono"
            autocomplete="off"
            spellcheck={false}
            value={name}
            disabled={disabled}
            onInput={(event) => onChange(scope, event.currentTarget.value)}
          />
        </Field>
      )}
    </div>
  );
};

const RATES = [
  ["producer_byte_rate", "Produce, per second"],
  ["consumer_byte_rate", "Fetch, per second"],
  ["controller_mutation_rate", "Partitions created and deleted, per second"],
] as const;

/** What was typed for a rate: null is no limit, undefined cannot be read. */
function rateOf(key: (typeof RATES)[number][0], text: string): number | null | undefined {
  const typed = text.trim();
  if (!typed || typed === "unlimited") return null;
  if (key === "controller_mutation_rate") return Number(typed) > 0 ? Number(typed) : undefined;
  const size = sizeBytes(typed.replace(/\/s$/, ""));
  return size === null || size === "0" ? undefined : Number(size);
}

const scopeOf = (name: string | null): Scope => (name === null ? "any" : name ? "one" : "all");
const textOf = (key: (typeof RATES)[number][0], quota: Quota | undefined) => {
  const value = quota?.[key];
  return value === null || value === undefined ? "" : key === "controller_mutation_rate" ? String(value) : sizeText(String(value));
};

const QuotaForm = ({ known, onDone, onClose }: { known?: Quota; onDone: () => void; onClose: () => void }) => {
  const [user, setUser] = useState({ scope: known ? scopeOf(known.user) : ("one" as Scope), name: known?.user ?? "" });
  const [client, setClient] = useState({ scope: known ? scopeOf(known.client) : ("any" as Scope), name: known?.client ?? "" });
  const [texts, setTexts] = useState(Object.fromEntries(RATES.map(([key]) => [key, textOf(key, known)])));
  const ids = [useId(), useId(), useId()];
  const entity = {
    user: user.scope === "any" ? null : user.scope === "all" ? "" : user.name.trim(),
    client: client.scope === "any" ? null : client.scope === "all" ? "" : client.name.trim(),
  };
  const rates = RATES.map(([key]) => rateOf(key, texts[key] ?? ""));
  const isNamed = (user.scope !== "one" || entity.user !== "") && (client.scope !== "one" || entity.client !== "");
  const ready =
    isNamed && (entity.user !== null || entity.client !== null) && !rates.includes(undefined) && rates.some((rate) => rate !== null);
  const send = async () => {
    const [produced, fetched, changed] = rates;
    await put(apiPath("/quotas"), {
      ...entity,
      producer_byte_rate: produced ?? null,
      consumer_byte_rate: fetched ?? null,
      controller_mutation_rate: changed ?? null,
    });
    say(`The quota of ${subject(entity)} is set.`);
    onDone();
  };
  return (
    <FormDialog title={known ? `Change the quota of ${subject(known)}` : "Add quota"} verb="Save" ready={ready} send={send} onClose={onClose}>
      {!known && (
        <>
          <NameChoice label="User" others="all others" {...user} disabled={false} onChange={(scope, name) => setUser({ scope, name })} />
          <NameChoice label="Client id" others="all others" {...client} disabled={false} onChange={(scope, name) => setClient({ scope, name })} />
        </>
      )}
      {RATES.map(([key, label], index) => (
        <Field
          key={key}
          id={ids[index] ?? ""}
          label={label}
          hint={
            rates[index] === undefined
              ? key === "controller_mutation_rate"
                ? "A number above 0"
                : "A size such as 512 KiB or 10 MiB"
              : undefined
          }
        >
          <input
            id={ids[index]}
            class="input mono"
            data-first={index === 0}
            autocomplete="off"
            placeholder="no limit"
            value={texts[key]}
            aria-invalid={rates[index] === undefined}
            onInput={(event) => setTexts({ ...texts, [key]: event.currentTarget.value })}
          />
        </Field>
      ))}
      <p class="muted small">A client over its quota is throttled, not refused. It takes effect at once.</p>
    </FormDialog>
  );
};

const shown = (value: number | null) => (value === null ? <span class="muted">no limit</span> : bytesPerSecond(value));

const columns = (refusal: string | null, edit: (quota: Quota) => void, drop: (quota: Quota) => void): Column<Quota>[] => [
  { key: "subject", title: "For", show: (row) => <span class="wrap">{subject(row)}</span> },
  { key: "producer_byte_rate", title: "Produce", end: true, width: "120px", show: (row) => shown(row.producer_byte_rate) },
  { key: "consumer_byte_rate", title: "Fetch", end: true, width: "120px", show: (row) => shown(row.consumer_byte_rate) },
  {
    key: "controller_mutation_rate",
    title: "Partition changes",
    end: true,
    wide: true,
    width: "150px",
    show: (row) => (row.controller_mutation_rate === null ? <span class="muted">no limit</span> : `${row.controller_mutation_rate}/s`),
  },
  {
    key: "actions",
    title: "Actions",
    end: true,
    width: "140px",
    show: (row) => (
      <span class="row-actions">
        <button
          type="button"
          class="button small"
          aria-label={`Change the quota of ${subject(row)}`}
          disabled={Boolean(refusal)}
          title={refusal ?? undefined}
          onClick={() => edit(row)}
        >
          Change
        </button>
        <button
          type="button"
          class="button plain small"
          aria-label={`Delete the quota of ${subject(row)}`}
          disabled={Boolean(refusal)}
          title={refusal ?? "Delete"}
          onClick={() => drop(row)}
        >
          <Icon name="trash" />
        </button>
      </span>
    ),
  },
];

type Asked = { what: "add" } | { what: "edit" | "delete"; quota: Quota };

export const Quotas = () => {
  const { data, error, refresh } = useLive(apiPath("/quotas"), {}, { every: 10000 });
  const refusal = useRights("cluster")("ALTER_CONFIGS");
  const [asked, ask] = useState<Asked | null>(null);
  if (isRefused(error)) return null; // the page says what its user may not see
  const done = () => {
    forget("/quotas");
    refresh();
  };
  const add = (
    <button type="button" class="button small" disabled={Boolean(refusal)} title={refusal ?? undefined} onClick={() => ask({ what: "add" })}>
      <Icon name="plus" />
      Add quota
    </button>
  );
  const ofNode = [
    data?.produce_bytes_per_s ? `produce ${bytesPerSecond(data.produce_bytes_per_s)}` : "",
    data?.fetch_bytes_per_s ? `fetch ${bytesPerSecond(data.fetch_bytes_per_s)}` : "",
  ].filter(Boolean);
  return (
    <Card title="Quotas" bare actions={add}>
      <Failure error={error} again={refresh} what="The quotas" />
      {data === null ? (
        !error && (
          <div class="card-body">
            <Bone width="40%" />
          </div>
        )
      ) : data.items.length ? (
        <Table
          label="Quotas"
          columns={columns(
            refusal,
            (quota) => ask({ what: "edit", quota }),
            (quota) => ask({ what: "delete", quota }),
          )}
          rows={data.items}
          keyOf={(row) => JSON.stringify([row.user, row.client])}
        />
      ) : (
        <Empty title="No quotas yet">
          {ofNode.length ? `Every client id may ${ofNode.join(" and ")}, by the settings of the node.` : "Every client may produce and fetch as fast as it can."}
        </Empty>
      )}
      {asked?.what === "add" && <QuotaForm onDone={done} onClose={() => ask(null)} />}
      {asked?.what === "edit" && <QuotaForm known={asked.quota} onDone={done} onClose={() => ask(null)} />}
      {asked?.what === "delete" && (
        <Confirm
          title="Delete quota"
          verb="Delete"
          touches={
            <>
              <strong>{subject(asked.quota)}</strong> is not limited any more, unless a wider quota applies. It takes effect at once.
            </>
          }
          act={async () => {
            await put(apiPath("/quotas"), { user: asked.quota.user, client: asked.quota.client });
            say(`The quota of ${subject(asked.quota)} is deleted.`);
            done();
          }}
          onClose={() => ask(null)}
        />
      )}
    </Card>
  );
};
