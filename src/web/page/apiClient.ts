import { signal } from "@preact/signals";

const tokenKey = "pg-task token";
const noAnswer = "pg-task does not answer";
/** In ms. pg-task itself has a shorter limit. */
const timeoutMs = 15_000;

export class RequestError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export const problemText = (error: unknown): string => (error instanceof RequestError ? error.message : String(error));

/** Why the login form is shown; null while the server accepts the token. */
export const tokenProblem = signal<"missing" | "wrong" | null>(null);

/** Whether the token allows changes. False until the server has said so. */
export const mayChange = signal(false);
export function followToken(): void {
  void takeTokenFromUrl();
  if (localStorage.getItem(tokenKey) === null) tokenProblem.value = "missing";
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
  tokenProblem.value = "missing";
}

/** Stores a token if the server accepts it. Otherwise, returns why not. */
export async function tryToken(token: string): Promise<string | null> {
  if (!isSendable(token)) return "Wrong token.";
  try {
    const headers = { Authorization: `Bearer ${token}` };
    const response = await fetch("/api/tables", { headers, signal: AbortSignal.timeout(timeoutMs) });
    if (response.status === 401) return "Wrong token.";
    if (!response.ok) return await failureText(response);
  } catch {
    return `${noAnswer}.`;
  }
  saveToken(token);
  return null;
}

/** @throws RequestError */
export async function request(path: string, options: RequestInit = {}): Promise<Response> {
  const token = localStorage.getItem(tokenKey);
  if (token !== null && !isSendable(token)) {
    tokenProblem.value = "wrong";
    throw new RequestError(401, "the token is wrong");
  }
  const response = await fetch(`/api${path}`, {
    ...options,
    headers: {
      Authorization: `Bearer ${token ?? ""}`,
      ...(options.body === undefined ? {} : { "Content-Type": "application/json" }),
    },
  }).catch((error: unknown) => {
    if (options.signal?.aborted === true) throw error;
    throw new RequestError(0, noAnswer);
  });
  mayChange.value = response.headers.get("Pg-Task-Access") === "full";
  if (response.ok) return response;
  // The answer to a request that was sent with an earlier token says nothing about the current one.
  const isCurrent = token === localStorage.getItem(tokenKey);
  if (response.status === 401 && isCurrent) tokenProblem.value = token === null ? "missing" : "wrong";
  throw new RequestError(response.status, await failureText(response));
}

async function failureText(response: Response): Promise<string> {
  try {
    const { detail }: { detail: string } = JSON.parse(await response.text());
    return detail;
  } catch {
    return `pg-task answered ${response.status}`;
  }
}

/** @throws RequestError; any error after `ending` was aborted */
export async function getJson<T>(path: string, ending: AbortSignal): Promise<T> {
  const limit = AbortSignal.any([ending, AbortSignal.timeout(timeoutMs)]);
  try {
    const response = await request(path, { signal: limit });
    const value: T = JSON.parse(await response.text());
    return value;
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
  const value: T = JSON.parse(await response.text());
  return value;
}
