import { signal } from "@preact/signals";
import type { TaskProblems } from "../api/changeSchemas.js";
import { base } from "./router.js";

export type ValueError = TaskProblems["errors"][number];

const tokenKey = "pg-task token";
const noAnswer = "pg-task does not answer";
/** In ms. pg-task itself has a shorter limit. */
const timeoutMs = 15_000;

export class RequestError extends Error {
  readonly status: number;
  /** What is wrong with which values, if the server says so. */
  readonly errors: readonly ValueError[];

  constructor(status: number, message: string, errors: readonly ValueError[] = []) {
    super(message);
    this.status = status;
    this.errors = errors;
  }
}

export const problemText = (error: unknown): string => (error instanceof RequestError ? error.message : String(error));

/** Why the login form is shown; null while the server accepts the token, or the login of a proxy. */
export const tokenProblem = signal<"missing" | "wrong" | null>(null);

/** Whom a proxy or the program has logged in. Null if it is the token that counts. */
export const loggedIn = signal<string | null>(null);

/** Whether the token allows changes. False until the server has said so. */
export const mayChange = signal(false);
export function followToken(): void {
  void takeTokenFromUrl();
  // If the page is already open, a link that differs only in the part behind # loads no new document.
  window.addEventListener("hashchange", () => void takeTokenFromUrl());
  window.addEventListener("storage", ({ key }) => {
    if (key === tokenKey || key === null)
      tokenProblem.value = localStorage.getItem(tokenKey) === null ? "missing" : null;
  });
}

/**
 * Stores the token from the link that the log shows, and removes the token from the address bar, so that a copied
 * address does not contain it. A stored token is replaced only by one that the server accepts: anybody can make a link,
 * and the token is that of all tabs.
 */
async function takeTokenFromUrl(): Promise<void> {
  const given = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (given === undefined) return;
  history.replaceState(null, "", location.pathname + location.search);
  const token = decoded(given);
  const stored = localStorage.getItem(tokenKey);
  if (stored === null) saveToken(token);
  else if (stored !== token) await tryToken(token);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Whether a token can be part of a header. Any other token is wrong. */
const isSendable = (token: string): boolean => /^[\x21-\x7e]+$/.test(token);

function saveToken(token: string): void {
  localStorage.setItem(tokenKey, token);
  tokenProblem.value = null;
}

export function forgetToken(): void {
  localStorage.removeItem(tokenKey);
  // The drafts of forms.
  sessionStorage.clear();
  tokenProblem.value = "missing";
}

/** Stores a token if the server accepts it. Otherwise, returns why not. */
export async function tryToken(token: string): Promise<string | null> {
  if (!isSendable(token)) return "Wrong token.";
  try {
    const headers = { Authorization: `Bearer ${token}` };
    const response = await fetch(`${base}/api/tables`, { headers, signal: AbortSignal.timeout(timeoutMs) });
    if (response.status === 401) return "Wrong token.";
    if (!response.ok) return (await failureOf(response)).detail;
  } catch {
    return `${noAnswer}.`;
  }
  saveToken(token);
  return null;
}

/** @throws RequestError */
export async function request(path: string, options: RequestInit): Promise<Response> {
  const token = localStorage.getItem(tokenKey);
  if (token !== null && !isSendable(token)) {
    tokenProblem.value = "wrong";
    throw new RequestError(401, "the token is wrong");
  }
  const headers = new Headers(options.headers);
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  if (options.body !== undefined) headers.set("Content-Type", "application/json");
  const response = await fetch(`${base}/api${path}`, { ...options, headers }).catch((error: unknown) => {
    if (options.signal?.aborted === true) throw error;
    throw new RequestError(0, noAnswer);
  });
  mayChange.value = response.headers.get("Pg-Task-Access") === "full";
  const user = response.headers.get("Pg-Task-User");
  loggedIn.value = user === null ? null : decodeURIComponent(user);
  if (response.ok || response.status === 304) return response;
  // The answer to a request that was sent with an earlier token says nothing about the current one.
  const isCurrent = token === localStorage.getItem(tokenKey);
  if (response.status === 401 && isCurrent) tokenProblem.value = token === null ? "missing" : "wrong";
  const { detail, errors } = await failureOf(response);
  throw new RequestError(response.status, detail, errors);
}

async function failureOf(response: Response): Promise<{ detail: string; errors?: readonly ValueError[] }> {
  try {
    return JSON.parse(await response.text());
  } catch {
    return { detail: `pg-task answered ${response.status}` };
  }
}

/** @throws RequestError; any error after `ending` was aborted */
export async function getJson<T>(path: string, ending: AbortSignal): Promise<T> {
  const { value } = await getVersion<T>(path, ending, null);
  if (value === null) throw new RequestError(0, noAnswer);
  return value;
}

export interface Version<T> {
  /** Null if it is still that of the given ETag. */
  readonly value: T | null;
  readonly etag: string | null;
}

/**
 * @param etag of the response that is known
 * @throws RequestError; any error after `ending` was aborted
 */
export async function getVersion<T>(path: string, ending: AbortSignal, etag: string | null): Promise<Version<T>> {
  const limit = AbortSignal.any([ending, AbortSignal.timeout(timeoutMs)]);
  try {
    const headers: HeadersInit = etag === null ? {} : { "If-None-Match": etag };
    const response = await request(path, { signal: limit, headers });
    if (response.status === 304) return { value: null, etag };
    const value: T = JSON.parse(await response.text());
    return { value, etag: response.headers.get("ETag") };
  } catch (error) {
    throw limit.aborted ? new RequestError(0, noAnswer) : error;
  }
}

/** @throws RequestError */
export async function post(path: string, body?: object): Promise<Response> {
  try {
    return await request(path, {
      method: "POST",
      signal: AbortSignal.timeout(timeoutMs),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch (error) {
    if (error instanceof RequestError) throw error;
    throw new RequestError(0, `${noAnswer}: it is unknown whether the action took effect`);
  }
}

/** @throws RequestError */
export async function postJson<T>(path: string, body: object): Promise<T> {
  const response = await post(path, body);
  return JSON.parse(await response.text());
}
