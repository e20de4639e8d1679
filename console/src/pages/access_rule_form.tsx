// The form that adds an access rule, and a rule as a sentence.
import { useState } from "preact/hooks";
import { type Schemas, apiPath, post } from "../api";
import { FormDialog, say } from "../dialogs";
import { Field, type FieldEvent, Notice, useId } from "../parts";

type Body = Required<Schemas["RuleBody"]>;

/** The operations that there are for each kind of resource, the usual ones first. */
const OPERATIONS: Record<Body["kind"], Body["operation"][]> = {
  topic: ["read", "write", "all", "create", "delete", "describe", "alter", "describe_configs", "alter_configs"],
  group: ["read", "all", "describe", "delete", "describe_configs", "alter_configs"],
  cluster: ["describe", "alter", "all", "create", "describe_configs", "alter_configs", "idempotent_write", "cluster_action"],
  transactional_id: ["write", "all", "describe", "two_phase_commit"],
};
const CLUSTER = "kafka-cluster";

export function ruleText(rule: Schemas["RuleView"]): string {
  const who = rule.user === "*" ? "Everyone" : rule.user;
  const what = rule.kind === "cluster" ? "the cluster" : `${rule.kind.replace("_", " ")} ${rule.name}${rule.pattern === "prefixed" ? "*" : ""}`;
  const host = rule.host === "*" ? "" : ` from ${rule.host}`;
  return `${who} ${rule.permission === "allow" ? "may" : "may not"} ${rule.operation.replaceAll("_", " ")} ${what}${host}`;
}

export const RuleForm = ({ onDone, onClose }: { onDone: () => void; onClose: () => void }) => {
  const [rule, setRule] = useState<Body>({
    user: "",
    permission: "allow",
    operation: "read",
    kind: "topic",
    name: "",
    pattern: "literal",
    host: "*",
  });
  const ids = [useId(), useId(), useId(), useId(), useId(), useId(), useId()];
  const set = (name: keyof Body) => (event: FieldEvent) => setRule({ ...rule, [name]: event.currentTarget.value });
  const setKind = (event: FieldEvent) => {
    const kind = event.currentTarget.value as Body["kind"];
    setRule({ ...rule, kind, operation: OPERATIONS[kind][0]!, name: kind === "cluster" ? CLUSTER : "", pattern: "literal" });
  };
  const send = async () => {
    await post(apiPath("/access-rules"), rule);
    say(`${ruleText(rule)}.`);
    onDone();
  };
  const ready = Boolean(rule.user && rule.name && rule.host);
  return (
    <FormDialog title="Add access rule" verb="Add" ready={ready} send={send} onClose={onClose}>
      <div class="pair">
        <Field id={ids[0]!} label="User" hint="* is everyone">
          <input
            id={ids[0]}
            class="input mono"
            data-first
            autocomplete="off"
            spellcheck={false}
            value={rule.user}
            onInput={set("user")}
          />
        </Field>
        <Field id={ids[1]!} label="Permission" hint="Deny takes precedence">
          <select id={ids[1]} class="select" value={rule.permission} onChange={set("permission")}>
            <option value="allow">Allow</option>
            <option value="deny">Deny</option>
          </select>
        </Field>
      </div>
      <div class="pair">
        <Field id={ids[2]!} label="Resource">
          <select id={ids[2]} class="select" value={rule.kind} onChange={setKind}>
            <option value="topic">Topic</option>
            <option value="group">Consumer group</option>
            <option value="transactional_id">Transactional id</option>
            <option value="cluster">Cluster</option>
          </select>
        </Field>
        <Field id={ids[3]!} label="Operation">
          <select id={ids[3]} class="select" value={rule.operation} onChange={set("operation")}>
            {OPERATIONS[rule.kind].map((operation) => (
              <option key={operation} value={operation}>
                {operation.replaceAll("_", " ")}
              </option>
            ))}
          </select>
        </Field>
      </div>
      {rule.kind !== "cluster" && (
        <div class="pair">
          <Field id={ids[4]!} label="Name" hint="* is every name">
            <input id={ids[4]} class="input mono" autocomplete="off" spellcheck={false} value={rule.name} onInput={set("name")} />
          </Field>
          <Field id={ids[5]!} label="Matches">
            <select id={ids[5]} class="select" value={rule.pattern} onChange={set("pattern")}>
              <option value="literal">exactly this name</option>
              <option value="prefixed">names that begin so</option>
            </select>
          </Field>
        </div>
      )}
      <Field id={ids[6]!} label="From" hint="the IP address of clients; * is any">
        <input id={ids[6]} class="input mono" autocomplete="off" spellcheck={false} value={rule.host} onInput={set("host")} />
      </Field>
      {ready && <Notice>{ruleText(rule)}.</Notice>}
    </FormDialog>
  );
};
