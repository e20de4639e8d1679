// Tokens: who is signed in with one, and tokens for programs. The token itself is shown once, when it is created.
import { useState } from "preact/hooks";
import { type Schemas, apiPath, post, remove } from "../api";
import { Confirm, Dialog, FormDialog, say } from "../dialogs";
import { Moment } from "../format";
import { Icon } from "../icons";
import { forget, useLive } from "../live";
import { Badge, Bone, Card, Command, Empty, Failure, Field, useId } from "../parts";
import type { Refusal } from "../rights";
import { type Column, Table } from "../tables";
import { durationMs } from "../units";

type Token = Schemas["TokenView"];

const KINDS: Record<Token["kind"], string> = { session: "browser", ydb: "YDB client", api: "program" };
const LIFE_MS_MAX = 366 * 86_400_000;

/** Seconds of a lifetime that was typed; null if it is none, or longer than allowed. */
function lifeSeconds(text: string): number | null {
  const ms = Number(durationMs(text) ?? NaN);
  return ms >= 60_000 && ms <= LIFE_MS_MAX ? Math.floor(ms / 1000) : null;
}

interface TokenFormProps {
  user: string;
  /** Why the user may create tokens only for themselves. */
  refusal: string | null;
  onIssued: (token: string) => void;
  onClose: () => void;
}

const TokenForm = ({ user, refusal, onIssued, onClose }: TokenFormProps) => {
  const [owner, setOwner] = useState(user);
  const [name, setName] = useState("");
  const [life, setLife] = useState("90d");
  const [ownerId, nameId, lifeId] = [useId(), useId(), useId()];
  const lifeS = lifeSeconds(life);
  const send = async () => {
    const issued = await post(apiPath("/users/{name}/tokens", { name: owner.trim() }), { name: name.trim(), life_s: lifeS ?? 0 });
    onIssued(issued.token);
  };
  return (
    <FormDialog title="Create token" verb="Create" ready={Boolean(owner.trim() && name.trim() && lifeS)} send={send} onClose={onClose}>
      <Field id={ownerId} label="User" hint="The program has the rights of this user">
        <input
          id={ownerId}
          class="input mono"
          autocomplete="off"
          spellcheck={false}
          value={owner}
          disabled={Boolean(refusal)}
          title={refusal ?? undefined}
          onInput={(event) => setOwner(event.currentTarget.value)}
        />
      </Field>
      <Field id={nameId} label="Name" hint="What it is for, such as nightly report">
        <input id={nameId} class="input" data-first autocomplete="off" maxLength={200} value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </Field>
      <Field id={lifeId} label="Expires in" hint={lifeS ? "Up to 366d" : "A duration from 1min to 366d, such as 12h or 90d"}>
        <input
          id={lifeId}
          class="input mono"
          autocomplete="off"
          value={life}
          aria-invalid={!lifeS}
          onInput={(event) => setLife(event.currentTarget.value)}
        />
      </Field>
    </FormDialog>
  );
};

const IssuedToken = ({ token, onClose }: { token: string; onClose: () => void }) => (
  <Dialog
    title="Token created"
    wide
    onClose={onClose}
    onSubmit={onClose}
    foot={
      <button type="submit" class="button primary" data-first>
        Done
      </button>
    }
  >
    <p>Copy it now: it is not stored and cannot be shown again.</p>
    <Command text={token} label="The token" />
    <p class="muted small">
      A program sends it as <code>Authorization: Bearer TOKEN</code> to the HTTP API, the schema registry and the streams.
    </p>
  </Dialog>
);

const columns = (mayRevoke: (token: Token) => string | null, ask: (token: Token) => void): Column<Token>[] => [
  { key: "user", title: "User", width: "18%", show: (row) => <span class="mono clip">{row.user}</span> },
  {
    key: "name",
    title: "Name",
    show: (row) => (
      <span class="wrap" title={`id ${row.id}`}>
        {row.name}
      </span>
    ),
  },
  { key: "kind", title: "Kind", width: "120px", wide: true, show: (row) => <Badge plain>{KINDS[row.kind]}</Badge> },
  { key: "created_ms", title: "Created", wide: true, width: "165px", show: (row) => <Moment value={row.created_ms} full /> },
  { key: "expires_ms", title: "Expires", wide: true, width: "165px", show: (row) => <Moment value={row.expires_ms} full /> },
  {
    key: "actions",
    title: "Actions",
    end: true,
    width: "110px",
    show: (row) => (
      <button
        type="button"
        class="button small"
        aria-label={`Revoke the token ${row.name} of ${row.user}`}
        title={mayRevoke(row) ?? undefined}
        disabled={Boolean(mayRevoke(row))}
        onClick={() => ask(row)}
      >
        Revoke
      </button>
    ),
  },
];

type Asked = { what: "create" } | { what: "issued"; token: string } | { what: "revoke"; token: Token };

export const TokenList = ({ user, search, may }: { user: string; search: string; may: Refusal }) => {
  const { data, error, refresh } = useLive(apiPath("/tokens"), { search, limit: 500 }, { every: 10000 });
  const [asked, ask] = useState<Asked | null>(null);
  const refusal = may("ALTER");
  const close = () => ask(null);
  const done = () => {
    forget("/tokens");
    forget("/users");
    refresh();
  };
  const create = (
    <button type="button" class="button small" onClick={() => ask({ what: "create" })}>
      <Icon name="plus" />
      Create token
    </button>
  );
  return (
    <Card title="Tokens" bare actions={create}>
      <Failure error={error} again={refresh} what="The tokens" />
      {!data ? (
        <div class="card-body">
          <Bone width="40%" />
        </div>
      ) : data.items.length ? (
        <Table
          label="Tokens"
          columns={columns(
            (token) => (token.user === user ? null : refusal),
            (token) => ask({ what: "revoke", token }),
          )}
          rows={data.items}
          keyOf={(row) => row.id}
        />
      ) : (
        <Empty title={search ? "No matching tokens" : "No tokens yet"}>
          {search ? "Change the search." : "Browsers and YDB clients that sign in get one; create others for programs."}
        </Empty>
      )}
      {data && data.total > data.items.length && (
        <p class="card-body muted small">
          The newest {data.items.length} of {data.total}. Search for others by user or name.
        </p>
      )}
      {asked?.what === "create" && (
        <TokenForm
          user={user}
          refusal={refusal}
          onIssued={(token) => {
            done();
            ask({ what: "issued", token });
          }}
          onClose={() => ask((now) => (now?.what === "create" ? null : now))}
        />
      )}
      {asked?.what === "issued" && <IssuedToken token={asked.token} onClose={close} />}
      {asked?.what === "revoke" && (
        <Confirm
          title="Revoke token"
          verb="Revoke"
          touches={
            <>
              <strong>{asked.token.name}</strong> of <strong>{asked.token.user}</strong> is refused from now on.
              {asked.token.kind !== "api" && " The user can sign in again."}
            </>
          }
          act={async () => {
            await remove(apiPath("/tokens/{id}", { id: asked.token.id }));
            say(`The token ${asked.token.name} is revoked.`);
            done();
          }}
          onClose={close}
        />
      )}
    </Card>
  );
};
