import { signal } from "@preact/signals";

const tokenKey = "pg-task token";
const noAnswer = "pg-task does not answer";
/** Time limit for a request, in ms. pg-task itself has a shorter limit. */
const timeoutMs = 15_000;

/** The error of a request that failed. `status` is the HTTP status, or 0 if there was no response. */
export class RequestError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Why the login form is shown; null while the server accepts the token. */
export const tokenProblem = signal<"missing" | "wrong" | null>(null);

/** Whether the token allows changes. False until the server has said so. */
export const mayChange = signal(false);

/**
 * Stores the token from the link that the log shows, and removes the token from the address bar, so that a copied
 * address does not contain it.
 */
export function takeTokenFromUrl(): void {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (token !== undefined) {
    localStorage.setItem(tokenKey, decodeURIComponent(token));
    history.replaceState(null, "", location.pathname + location.search);
  }
  if (localStorage.getItem(tokenKey) === null) tokenProblem.value = "missing";
}

export function saveToken(token: string): void {
  localStorage.setItem(tokenKey, token);
  tokenProblem.value = null;
}

/**
 * Sends a request with the token.
 *
 * @throws RequestError
 */
export async function request(path: string, options: RequestInit = {}): Promise<Response> {
  const token = localStorage.getItem(tokenKey);
  const response = await fetch(`/api${path}`, {
    ...options,
    headers: { Authorization: `Bearer ${token ?? ""}` },
  }).catch((error: unknown) => {
    if (options.signal?.aborted === true) throw error;
    throw new RequestError(0, noAnswer);
  });
  mayChange.value = response.headers.get("Pg-Task-Access") === "full";
  if (response.ok) return response;
  if (response.status === 401) tokenProblem.value = token === null ? "missing" : "wrong";
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

/**
 * Sends a GET request and returns the parsed response.
 *
 * @throws RequestError; any error after `ending` was aborted
 */
export async function getJson<T>(path: string, ending: AbortSignal): Promise<T> {
  const limit = new AbortController();
  const abort = (): void => limit.abort();
  const timer = window.setTimeout(abort, timeoutMs);
  ending.addEventListener("abort", abort);
  try {
    const response = await request(path, { signal: limit.signal });
    const value: T = JSON.parse(await response.text());
    return value;
  } catch (error) {
    if (limit.signal.aborted) throw new RequestError(0, noAnswer);
    throw error;
  } finally {
    window.clearTimeout(timer);
    ending.removeEventListener("abort", abort);
  }
}

/**
 * Sends a POST request.
 *
 * @throws RequestError
 */
export async function post(path: string): Promise<void> {
  try {
    await request(path, { method: "POST", signal: AbortSignal.timeout(timeoutMs) });
  } catch (error) {
    if (error instanceof RequestError) throw error;
    throw new RequestError(0, `${noAnswer}: it is unknown whether the action took effect`);
  }
}
