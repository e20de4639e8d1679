// The admin API, typed by the paths of its OpenAPI document. Every answer is JSON, every failure says what happened and what to do.
import type { components, paths } from "../generated/api";
import { sentence } from "./format";
import { href, type Query } from "./router";

export const API = "/api/v1";
/** The event of a request that the node did not answer. */
export const UNREACHABLE = "penstock-unreachable";

/** What the API answers with, by the names that its document gives: Schemas["TopicView"]. */
export type Schemas = components["schemas"];

type Below<P> = P extends `${typeof API}${infer Rest}` ? Rest : never;
/** A path of the document, without the prefix of the API: "/topics/{name}". */
export type Path = Below<keyof paths>;
type Method = "get" | "post" | "put" | "patch" | "delete";
type Operation<P extends Path, M extends Method> = paths[`${typeof API}${P}`][M];
type Json<Body> = { content: { "application/json": Body } };
/** The paths that have a method. */
export type PathWith<M extends Method> = { [P in Path]: Operation<P, M> extends { responses: unknown } ? P : never }[Path];
export type AnswerTo<P extends Path, M extends Method = "get"> =
  Operation<P, M> extends { responses: { 200: Json<infer Answer> } } ? Answer : never;
/** The parameters of a GET; those that are null or undefined are left out. */
export type QueryOf<P extends Path> =
  Operation<P, "get"> extends { parameters: { query?: infer Parameters } }
    ? [NonNullable<Parameters>] extends [never]
      ? Record<string, never>
      : { [Name in keyof Parameters]?: Parameters[Name] | null }
    : never;
type BodyOf<P extends Path, M extends Method> = Operation<P, M> extends { requestBody: Json<infer Body> } ? [Body] : [];

type NameIn<P extends string> = P extends `${string}{${infer Name}}${infer Rest}` ? Name | NameIn<Rest> : never;
type PathWithNames = Extract<Path, `${string}{${string}`>;
type NamesOf<P extends string> = Readonly<Record<NameIn<P>, string | number>>;
/** A path with its names filled in, which still knows the path it was made from. */
export type Address<P extends Path = Path> = string & { readonly madeFrom: P };

/** apiPath("/topics/{name}", { name: "a/b" }) is /topics/a%2Fb. */
export function apiPath<P extends Exclude<Path, PathWithNames>>(path: P): Address<P>;
export function apiPath<P extends PathWithNames>(path: P, names: NamesOf<P>): Address<P>;
export function apiPath(path: Path, names: Readonly<Record<string, string | number>> = {}): Address {
  return path.replace(/{(\w+)}/g, (_, name: string) => encodeURIComponent(names[name] ?? "")) as Address;
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(sentence(message));
  }
}

/** Whether the node did not answer at all, so that asking again later may help. */
export const isUnreachable = (error: Error | null): boolean => error instanceof ApiError && error.status === 0;
export const isRefused = (error: Error | null): boolean => error instanceof ApiError && error.status === 403;
export const isNotFound = (error: Error | null): boolean => error instanceof ApiError && error.status === 404;

/** What was thrown, as an error that can be shown. */
export const errorOf = (thrown: unknown): Error => (thrown instanceof Error ? thrown : new Error(String(thrown)));

async function failureOf(response: Response): Promise<ApiError> {
  let told: Partial<Schemas["ErrorText"]> | undefined;
  try {
    told = ((await response.json()) as Partial<Schemas["ErrorAnswer"]>).error;
  } catch {
    /* not from the API: a proxy, or the node is stopping */
  }
  const status = `HTTP_${response.status}`;
  if (told?.message) return new ApiError(response.status, told.code ?? status, told.message);
  if (response.status === 401) {
    return new ApiError(
      401,
      "NOT_SIGNED_IN",
      "You are not signed in. Reload the page to sign in.",
    );
  }
  return new ApiError(response.status, status, `The node answered ${response.status} ${response.statusText}. Its log says more.`);
}

interface RequestOptions {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
  /** Reads the text of the answer; JSON.parse unless it is given. */
  parse?: (text: string) => unknown;
}

/** One request; throws ApiError. */
async function request(method: Method, address: string, { query, body, signal, parse }: RequestOptions = {}): Promise<unknown> {
  // The second says that this page asks for a password, so that the browser does not.
  const headers: Record<string, string> = { Accept: "application/json", "X-Penstock-Console": "1" };
  const options: RequestInit = { method: method.toUpperCase(), headers, credentials: "same-origin" };
  if (signal) options.signal = signal;
  if (method !== "get") {
    headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body ?? {});
  }
  let response: Response;
  try {
    response = await fetch(href(API + address, query), options);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    dispatchEvent(new Event(UNREACHABLE));
    throw new ApiError(
      0,
      "UNREACHABLE",
      "The node does not answer. Check that penstock up is running; this page tries again by itself.",
    );
  }
  if (!response.ok) throw await failureOf(response);
  return parse ? parse(await response.text()) : response.json();
}

export const get = <P extends PathWith<"get">>(
  address: Address<P>,
  query?: QueryOf<P>,
  options?: Pick<RequestOptions, "signal" | "parse">,
) => request("get", address, { ...options, query: query as Query | undefined }) as Promise<AnswerTo<P>>;

/** A method that changes something, and the body that its path takes. */
const changing =
  <M extends Exclude<Method, "get">>(method: M) =>
  <P extends PathWith<M>>(address: Address<P>, ...[body]: BodyOf<P, M>) =>
    request(method, address, { body }) as Promise<AnswerTo<P, M>>;
export const post = changing("post");
export const put = changing("put");
export const patch = changing("patch");
export const remove = changing("delete");
