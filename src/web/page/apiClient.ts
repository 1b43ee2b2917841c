import { signal } from "@preact/signals";

const storedUnder = "pg-task token";
const silent = "pg-task does not answer";
/** How long an answer may take, in ms; pg-task itself gives up before. */
const limitMs = 15_000;

/** What kept a request from being answered. */
export class ApiRefusal extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Why the token is asked for; null while the one there is does. */
export const gate = signal<"missing" | "wrong" | null>(null);

/** Takes the token out of the address, where the log's link has it, so that it is not copied on with it. */
export function takeToken(): void {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (token !== undefined) {
    localStorage.setItem(storedUnder, decodeURIComponent(token));
    history.replaceState(null, "", location.pathname + location.search);
  }
  if (localStorage.getItem(storedUnder) === null) gate.value = "missing";
}

export function enterWith(token: string): void {
  localStorage.setItem(storedUnder, token);
  gate.value = null;
}

/** Asks the API. @throws Refusal */
export async function ask(path: string, options: RequestInit = {}): Promise<Response> {
  const token = localStorage.getItem(storedUnder);
  const response = await fetch(`/api${path}`, {
    ...options,
    headers: { Authorization: `Bearer ${token ?? ""}` },
  }).catch((error: unknown) => {
    if (options.signal?.aborted === true) throw error;
    throw new ApiRefusal(0, silent);
  });
  if (response.ok) return response;
  if (response.status === 401) gate.value = token === null ? "missing" : "wrong";
  throw new ApiRefusal(response.status, await reasonOf(response));
}

async function reasonOf(response: Response): Promise<string> {
  try {
    const { error }: { error: { message: string } } = JSON.parse(await response.text());
    return error.message;
  } catch {
    return `pg-task answered ${response.status}`;
  }
}

/** What the API answers to a GET. @throws Refusal; anything when `ending` is aborted */
export async function read<T>(path: string, ending: AbortSignal): Promise<T> {
  const limit = new AbortController();
  const giveUp = (): void => limit.abort();
  const timer = window.setTimeout(giveUp, limitMs);
  ending.addEventListener("abort", giveUp);
  try {
    const response = await ask(path, { signal: limit.signal });
    const value: T = JSON.parse(await response.text());
    return value;
  } catch (error) {
    if (limit.signal.aborted) throw new ApiRefusal(0, silent);
    throw error;
  } finally {
    window.clearTimeout(timer);
    ending.removeEventListener("abort", giveUp);
  }
}

/** Has the API do something. @throws Refusal */
export async function act(path: string): Promise<void> {
  try {
    await ask(path, { method: "POST", signal: AbortSignal.timeout(limitMs) });
  } catch (error) {
    if (error instanceof ApiRefusal) throw error;
    throw new ApiRefusal(0, `${silent}: whether it was done is not known`);
  }
}
