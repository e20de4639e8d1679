// The schema registry's own API, for what the admin API does not repeat: texts of schemas, and everything that changes them.
import { ApiError } from "./api";
import { href, type Query } from "./router";

const REGISTRY = "/schema-registry";
const CONTENT_TYPE = "application/vnd.schemaregistry.v1+json";

export type SchemaType = "AVRO" | "JSON" | "PROTOBUF";

interface Reference {
  name: string;
  subject: string;
  version: number;
}

/** A version as the registry answers with it; of Avro it does not say the type. */
interface RegisteredSchema {
  id: number;
  version: number;
  schema: string;
  schemaType?: SchemaType;
  references?: Reference[];
}

interface Verdict {
  is_compatible: boolean;
  messages?: string[];
}

async function call<Answer>(method: string, segments: (string | number)[], query: Query = {}, body?: unknown): Promise<Answer> {
  const path = [REGISTRY, ...segments.map((part) => encodeURIComponent(part))].join("/");
  const options: RequestInit = { method, headers: { "Content-Type": CONTENT_TYPE }, credentials: "same-origin" };
  if (body !== undefined) options.body = JSON.stringify(body);
  let response: Response;
  try {
    response = await fetch(href(path, query), options);
  } catch {
    throw new ApiError(0, "UNREACHABLE", "The node does not answer. Check that penstock up is running.");
  }
  const told = (await response.json().catch(() => ({}))) as { message?: string; error_code?: number };
  if (!response.ok)
    throw new ApiError(response.status, String(told.error_code ?? response.status), told.message ?? response.statusText);
  return told as Answer;
}

export const fetchVersion = (subject: string, version: number) =>
  call<RegisteredSchema>("GET", ["subjects", subject, "versions", version]);

export const checkCompatibility = (subject: string, schema: string, schemaType: SchemaType, references: Reference[] = []) =>
  call<Verdict>("POST", ["compatibility", "subjects", subject, "versions"], { verbose: true }, { schema, schemaType, references });

export const registerSchema = (subject: string, schema: string, schemaType: SchemaType, references: Reference[] = []) =>
  call<{ id: number }>("POST", ["subjects", subject, "versions"], {}, { schema, schemaType, references });

export const deleteSubject = (subject: string) => call<number[]>("DELETE", ["subjects", subject]);

export const deleteVersion = (subject: string, version: number) =>
  call<number>("DELETE", ["subjects", subject, "versions", version]);

/** Set the compatibility level of a subject; null gives it that of all. */
export const setLevel = (subject: string, level: string | null) =>
  level === null
    ? call<unknown>("DELETE", ["config", subject])
    : call<unknown>("PUT", ["config", subject], {}, { compatibility: level });

/** The text of a schema as people read it: JSON is indented. */
export function readable(text: string, type: string): string {
  if (type === "PROTOBUF") return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
