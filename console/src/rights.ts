// What the signed-in user may do, so that what would be refused is not offered.
import { apiPath } from "./api";
import { useLive } from "./live";

export type Operation = "READ" | "WRITE" | "CREATE" | "DELETE" | "ALTER" | "ALTER_CONFIGS";

/** Why an operation would be refused; null if it is allowed, or if that is not known yet. */
export type Refusal = (operation: Operation) => string | null;

/** The rights on a topic, a group or the cluster; without a name, on any of the kind. */
export function useRights(kind: "topic" | "group" | "cluster", name = ""): Refusal {
  const { data } = useLive(apiPath("/rights"), { kind, name }, { every: 30000 });
  const what = kind === "cluster" ? "the cluster" : name ? `the ${kind} ${name}` : `any ${kind}`;
  return (operation) =>
    data && !data.operations.includes(operation)
      ? `You may not ${operation.replace("_", " ")} ${what}; an administrator can allow it with penstock access allow`
      : null;
}
