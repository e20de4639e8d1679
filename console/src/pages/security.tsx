// Users, tokens, access rules and quotas: who may sign in, what each may do, and how much.
import { useState } from "preact/hooks";
import { type Schemas, apiPath, post, put, remove } from "../api";
import { Confirm, FormDialog, say } from "../dialogs";
import { plural } from "../format";
import { Icon } from "../icons";
import { forget, useLive } from "../live";
import { Badge, Bone, Card, Empty, Failure, Field, PageHead, Search, useId } from "../parts";
import { type Refusal, useRights } from "../rights";
import { setQuery, useLocation } from "../router";
import { useCluster } from "../shell";
import { type Column, Table } from "../tables";
import { RuleForm, ruleText } from "./access_rule_form";
import { Quotas } from "./quotas";
import { TokenList } from "./tokens";

type User = Schemas["UserView"];
type Rule = Schemas["RuleView"];

const UserForm = ({ known, onDone, onClose }: { known?: string; onDone: () => void; onClose: () => void }) => {
  const [name, setName] = useState(known ?? "");
  const [password, setPassword] = useState("");
  const [nameId, passwordId] = [useId(), useId()];
  const send = async () => {
    await put(apiPath("/users/{name}", { name }), { password });
    say(known ? `The password of ${name} is changed.` : `User ${name} is created.`);
    onDone();
  };
  return (
    <FormDialog
      title={known ? `Change the password of ${known}` : "Create user"}
      verb={known ? "Change" : "Create"}
      ready={Boolean(name && password)}
      send={send}
      onClose={onClose}
    >
      {!known && (
        <Field id={nameId} label="User" hint="May do nothing until an access rule allows it">
          <input
            id={nameId}
            class="input mono"
            data-first
            autocomplete="off"
            spellcheck={false}
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </Field>
      )}
      <Field id={passwordId} label="Password" hint="Clients sign in with SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN">
        <input
          id={passwordId}
          class="input"
          type="password"
          data-first={Boolean(known)}
          autocomplete="new-password"
          value={password}
          onInput={(event) => setPassword(event.currentTarget.value)}
        />
      </Field>
    </FormDialog>
  );
};

type Asked =
  | { what: "create" }
  | { what: "rule" }
  | { what: "password"; name: string }
  | { what: "revoke"; name: string }
  | { what: "delete"; name: string }
  | { what: "delete-rule"; rule: Rule };

const userColumns = (refusal: string | null, ask: (asked: Asked) => void): Column<User>[] => [
  {
    key: "name",
    title: "User",
    show: (row) => (
      <>
        <span class="mono">{row.name}</span>{" "}
        {row.is_admin && (
          <Badge plain tone="accent" title="Named where the node is started; may do everything">
            administrator
          </Badge>
        )}
      </>
    ),
  },
  { key: "mechanisms", title: "Signs in with", wide: true, show: (row) => row.mechanisms.join(", ") },
  {
    key: "tokens",
    title: "Tokens",
    wide: "wider",
    width: "90px",
    about: "Valid ones: sessions of browsers, YDB clients, and those created for programs",
    end: true,
    show: (row) => <span title={row.token_revocations ? `All were revoked ${plural(row.token_revocations, "time")}` : undefined}>{row.tokens}</span>,
  },
  {
    key: "actions",
    title: "Actions",
    end: true,
    width: "250px",
    show: (row) => (
      <span class="row-actions">
        <button
          type="button"
          class="button small"
          aria-label={`Change the password of ${row.name}`}
          title={refusal ?? adminOnly(row) ?? undefined}
          disabled={Boolean(refusal ?? adminOnly(row))}
          onClick={() => ask({ what: "password", name: row.name })}
        >
          Password
        </button>
        <button
          type="button"
          class="button small"
          aria-label={`Revoke tokens of ${row.name}`}
          title={refusal ?? "End all sessions in browsers and refuse all tokens"}
          disabled={Boolean(refusal)}
          onClick={() => ask({ what: "revoke", name: row.name })}
        >
          Revoke tokens
        </button>
        <button
          type="button"
          class="button plain small"
          aria-label={`Delete user ${row.name}`}
          title={refusal ?? adminOnly(row) ?? "Delete"}
          disabled={Boolean(refusal ?? adminOnly(row))}
          onClick={() => ask({ what: "delete", name: row.name })}
        >
          <Icon name="trash" />
        </button>
      </span>
    ),
  },
];

const adminOnly = (row: User) => (row.is_admin ? "The administrator is set where the node is started" : null);

const ruleColumns = (refusal: string | null, ask: (asked: Asked) => void): Column<Rule>[] => [
  {
    key: "permission",
    title: "Rule",
    width: "90px",
    show: (row) => <Badge tone={row.permission === "allow" ? "good" : "bad"}>{row.permission}</Badge>,
  },
  { key: "user", title: "User", sorts: true, show: (row) => <span class="mono clip">{row.user === "*" ? "everyone" : row.user}</span> },
  { key: "operation", title: "Operation", sorts: true, show: (row) => row.operation.replaceAll("_", " ") },
  {
    key: "name",
    title: "Resource",
    sorts: true,
    show: (row) => (
      <>
        {row.kind.replace("_", " ")} {row.kind !== "cluster" && <code class="wrap">{row.name + (row.pattern === "prefixed" ? "*" : "")}</code>}
      </>
    ),
  },
  { key: "host", title: "From", wide: true, width: "120px", show: (row) => (row.host === "*" ? "any host" : row.host) },
  {
    key: "delete",
    title: "Actions",
    end: true,
    width: "110px",
    show: (row) => (
      <button
        type="button"
        class="button plain small"
        aria-label={`Delete the rule: ${ruleText(row)}`}
        title={refusal ?? "Delete"}
        disabled={Boolean(refusal)}
        onClick={() => ask({ what: "delete-rule", rule: row })}
      >
        <Icon name="trash" />
      </button>
    ),
  },
];

const keyOfRule = (row: Rule) => [row.permission, row.user, row.operation, row.kind, row.pattern, row.name, row.host].join("\n");

/** The dialog that was asked for. */
const Asking = ({ asked, refresh, onClose }: { asked: Asked; refresh: () => void; onClose: () => void }) => {
  if (asked.what === "create") return <UserForm onDone={refresh} onClose={onClose} />;
  if (asked.what === "rule") return <RuleForm onDone={refresh} onClose={onClose} />;
  if (asked.what === "password") return <UserForm known={asked.name} onDone={refresh} onClose={onClose} />;
  if (asked.what === "delete-rule")
    return (
      <Confirm
        title="Delete access rule"
        verb="Delete"
        touches={<>{ruleText(asked.rule)}. It takes effect at once.</>}
        act={async () => {
          await post(apiPath("/access-rules/delete"), asked.rule as Schemas["RuleBody"]);
          refresh();
        }}
        onClose={onClose}
      />
    );
  const { name } = asked;
  return asked.what === "revoke" ? (
    <Confirm
      title={`Revoke the tokens of ${name}`}
      verb="Revoke"
      touches={
        <>
          All tokens of <strong>{name}</strong> are refused from now on, those of browsers, YDB clients and programs. Connections of Kafka clients
          stay open.
        </>
      }
      act={async () => {
        await remove(apiPath("/users/{name}/tokens", { name }));
        say(`The tokens of ${name} are revoked.`);
        refresh();
      }}
      onClose={onClose}
    />
  ) : (
    <Confirm
      title={`Delete user ${name}`}
      verb="Delete"
      typed={name}
      touches="The user cannot sign in any more. Open connections of Kafka clients stay; its access rules stay, too."
      act={async () => {
        await remove(apiPath("/users/{name}", { name }));
        say(`User ${name} is deleted.`);
        refresh();
      }}
      onClose={onClose}
    />
  );
};

const Lists = ({ user, may }: { user: string; may: Refusal }) => {
  const { query } = useLocation();
  const search = query.search ?? "";
  const users = useLive(apiPath("/users"), { search, limit: 500 }, { every: 10000 });
  const rules = useLive(apiPath("/access-rules"), { search, limit: 500 }, { every: 10000 });
  const [asked, ask] = useState<Asked | null>(null);
  const refusal = may("ALTER");
  const refresh = () => {
    forget("/users");
    forget("/access-rules");
    forget("/tokens");
    users.refresh();
    rules.refresh();
  };
  const button = (text: string, what: "create" | "rule") => (
    <button type="button" class="button small" disabled={Boolean(refusal)} title={refusal ?? undefined} onClick={() => ask({ what })}>
      <Icon name="plus" />
      {text}
    </button>
  );
  return (
    <>
      <div class="row">
        <Search label="Search users, tokens and resources" value={search} onChange={(text) => setQuery({ search: text || null })} />
      </div>
      <Failure error={users.error ?? rules.error} again={refresh} what="Security" />
      <Card title="Users" bare actions={button("Create user", "create")}>
        {!users.data ? (
          <div class="card-body">
            <Bone width="40%" />
          </div>
        ) : users.data.items.length ? (
          <Table label="Users" columns={userColumns(refusal, ask)} rows={users.data.items} keyOf={(row) => row.name} />
        ) : (
          <Empty title="No matching users">Change the search.</Empty>
        )}
      </Card>
      <TokenList user={user} search={search} may={may} />
      <Card title="Access rules" bare actions={button("Add rule", "rule")}>
        {!rules.data ? (
          <div class="card-body">
            <Bone width="40%" />
          </div>
        ) : rules.data.items.length ? (
          <Table label="Access rules" columns={ruleColumns(refusal, ask)} rows={rules.data.items} keyOf={keyOfRule} />
        ) : (
          <Empty title={search ? "No matching access rules" : "No access rules yet"}>
            {search ? "Change the search." : "Only the administrator may do anything, unless the node allows what no rule covers."}
          </Empty>
        )}
      </Card>
      {asked && <Asking asked={asked} refresh={refresh} onClose={() => ask(null)} />}
    </>
  );
};

export default function Security() {
  const cluster = useCluster();
  const may = useRights("cluster");
  if (!cluster) return null;
  return (
    <div class="page">
      <PageHead title="Security" note="Users who may sign in and their tokens, the access rules (ACLs) that say what each may do, and quotas." />
      {cluster.security.sasl ? (
        <Lists user={cluster.user ?? ""} may={may} />
      ) : (
        <Card>
          <Empty title="Everyone may do everything" command="penstock up --sasl true --admin-password-file FILE">
            This node does not ask who its clients are, so there are no users and no access rules. To require sign-in:
          </Empty>
        </Card>
      )}
      <Quotas />
    </div>
  );
}
