import { useSignal, useSignalEffect, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { tableChanges, clusterChanges } from "./liveEvents.js";
import { tokenProblem, getJson, problemText, RequestError } from "./apiClient.js";

export interface Resource<T> {
  readonly value: T | null;
  /** Why the last request failed; null if it succeeded. After a failure, `value` is an older response. */
  readonly problem: string | null;
  readonly retries: boolean;
  /** In ms since 1970; 0 before the first response. */
  readonly at: number;
  /** Until this is false, `value` may belong to another path. */
  readonly busy: boolean;
  /** Does not wait for the least interval. */
  readonly refresh: () => void;
}

/**
 * Returns the API's response for `path`. The request is repeated when the table changes, when the cluster or the state
 * of the login changes, and every `pollMs`, but at most once per `minIntervalMs`. If `table` is not given, a change of
 * any table counts.
 */
export function useResource<T>(
  path: string,
  { table, minIntervalMs = 400, pollMs }: { table?: string; minIntervalMs?: number; pollMs?: number } = {},
): Resource<T> {
  const state: Signal<Answer<T>> = useSignal({ path, value: null, problem: null, retries: false, at: 0 });
  const poller = useRef<Poller | null>(null);
  useEffect(() => {
    const current = new Poller(async (signal) => {
      try {
        const value = await getJson<T>(path, signal);
        state.value = { path, value, problem: null, retries: false, at: Date.now() };
        return true;
      } catch (error) {
        if (signal.aborted) return true;
        const problem = problemText(error);
        const known = state.peek();
        const { value, at } = known.path === path ? known : { value: null, at: 0 };
        const retries = !(error instanceof RequestError && error.status >= 400 && error.status < 500);
        state.value = { path, value, problem, retries, at };
        return !retries;
      }
    }, minIntervalMs);
    poller.current = current;
    current.request();
    const timer = pollMs === undefined ? null : setInterval(() => current.request(), pollMs);
    return () => {
      if (timer !== null) clearInterval(timer);
      current.end();
    };
  }, [path]);
  const previousVersion = useRef<unknown>(null);
  useSignalEffect(() => {
    const all = [...tableChanges.value.values()].reduce((sum, count) => sum + count, 0);
    const changes = table === undefined ? all : (tableChanges.value.get(table) ?? 0);
    const version = `${changes} ${clusterChanges.value} ${tokenProblem.value ?? ""}`;
    if (previousVersion.current !== null && previousVersion.current !== version) poller.current?.request();
    previousVersion.current = version;
  });
  const { value, problem, retries, at, path: answeredPath } = state.value;
  const busy = answeredPath !== path || (value === null && problem === null);
  return { value, problem, retries, at, busy, refresh: () => poller.current?.request(true) };
}

type Answer<T> = Omit<Resource<T>, "busy" | "refresh"> & { readonly path: string };

/** In ms. */
const retryMs = 5_000;

/** Makes one request at a time and keeps a minimum interval between requests. */
class Poller {
  /** Resolves to false if the request must be repeated. */
  readonly #work: (signal: AbortSignal) => Promise<boolean>;
  readonly #minIntervalMs: number;
  readonly #ending = new AbortController();
  #isRequesting = false;
  #isRequestedAgain = false;
  #requestedAt = -Infinity;
  #timer: number | undefined;

  constructor(work: (signal: AbortSignal) => Promise<boolean>, minIntervalMs: number) {
    this.#work = work;
    this.#minIntervalMs = minIntervalMs;
  }

  request(now = false): void {
    if (this.#ending.signal.aborted || document.visibilityState === "hidden") return;
    if (this.#isRequesting) {
      this.#isRequestedAgain = true;
      return;
    }
    const pauseMs = now ? 0 : this.#requestedAt + this.#minIntervalMs - performance.now();
    window.clearTimeout(this.#timer);
    if (pauseMs <= 0) void this.#run();
    else this.#timer = window.setTimeout(() => void this.#run(), pauseMs);
  }

  end(): void {
    window.clearTimeout(this.#timer);
    this.#ending.abort();
  }

  async #run(): Promise<void> {
    this.#isRequesting = true;
    this.#isRequestedAgain = false;
    this.#requestedAt = performance.now();
    const isDone = await this.#work(this.#ending.signal);
    this.#isRequesting = false;
    if (this.#isRequestedAgain) this.request();
    else if (!isDone) this.#timer = window.setTimeout(() => this.request(), retryMs);
  }
}
