// The admin API: every answer is JSON, every failure says what happened and what to do.
import { sentence } from "./format.js";
import { href } from "./router.js";

export const API = "/api/v1";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(sentence(message));
    this.status = status;
    this.code = code;
  }
}

/** The path below the API for some segments: apiPath("topics", name, "config"). */
export const apiPath = (...segments) => "/" + segments.map(encodeURIComponent).join("/");

async function failureOf(response) {
  let told = null;
  try {
    told = (await response.json()).error;
  } catch {
    /* not from the API: a proxy, or the node is stopping */
  }
  if (told?.message) return new ApiError(response.status, told.code, told.message);
  if (response.status === 401) {
    return new ApiError(
      401,
      "NOT_SIGNED_IN",
      "You are not signed in. Reload the page: the browser asks for a name and a password.",
    );
  }
  return new ApiError(
    response.status,
    `HTTP_${response.status}`,
    `The node answered ${response.status} ${response.statusText}. Its log says more.`,
  );
}

export async function request(method, path, { query, body, signal, parse } = {}) {
  const options = { method, signal, headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (method !== "GET") {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body ?? {});
  }
  let response;
  try {
    response = await fetch(href(API + path, query), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(
      0,
      "UNREACHABLE",
      "The node does not answer. Check that penstock up is running; this page tries again by itself.",
    );
  }
  if (!response.ok) throw await failureOf(response);
  if (response.status === 204) return null;
  return parse ? parse(await response.text()) : response.json();
}

export const get = (path, query, signal) => request("GET", path, { query, signal });
export const post = (path, body) => request("POST", path, { body });
export const put = (path, body) => request("PUT", path, { body });
export const patch = (path, body) => request("PATCH", path, { body });
export const remove = (path) => request("DELETE", path);
