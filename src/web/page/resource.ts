import { useSignal, useSignalEffect, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { tableChanges, clusterChanges } from "./liveEvents.js";
import { tokenProblem, getVersion, problemText, RequestError } from "./apiClient.js";

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

interface ResourceOptions<T> {
  /** Default: a change of any table counts. */
  readonly table?: string;
  readonly minIntervalMs?: number;
  readonly pollMs?: number;
  /** Whether the request is repeated at all, once there is a response. A change of the login always counts. */
  readonly repeats?: boolean;
  /** After such a response, the request is only repeated by `refresh`. */
  readonly isFinal?: (value: T) => boolean;
}

/**
 * Returns the API's response for `path`. The request is repeated when the table changes, when the cluster or the state
 * of the login changes, and every `pollMs`, but at most once per `minIntervalMs`.
 */
export function useResource<T>(path: string, options: ResourceOptions<T>): Resource<T> {
  const { table, minIntervalMs = 400, pollMs, repeats = true, isFinal = () => false } = options;
  const state: Signal<Answer<T>> = useSignal({ path, value: null, problem: null, retries: false, at: 0 });
  const poller = useRef<Poller | null>(null);
  const isSettled = useRef<() => boolean>(() => false);
  isSettled.current = () => {
    const { value, path: known, problem } = state.peek();
    return value !== null && known === path && problem === null && (!repeats || isFinal(value));
  };
  useEffect(() => {
    let etag: string | null = null;
    const current = new Poller(async (signal) => {
      try {
        const answer = await getVersion<T>(path, signal, etag);
        const at = Date.now();
        if (answer.value !== null) {
          ({ etag } = answer);
          state.value = { path, value: answer.value, problem: null, retries: false, at };
          return true;
        }
        // Nothing that is shown has changed, unless the last request failed.
        const same = state.peek();
        if (same.problem === null) same.at = at;
        else state.value = { ...same, problem: null, retries: false, at };
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
    const poll = (): void => {
      if (!isSettled.current()) current.request();
    };
    const timer = pollMs === undefined ? null : setInterval(poll, pollMs);
    return () => {
      if (timer !== null) clearInterval(timer);
      current.end();
    };
  }, [path]);
  useEffect(() => {
    if (repeats && state.peek().value !== null) poller.current?.request();
  }, [repeats]);
  const previousVersion = useRef({ data: "", login: "" });
  useSignalEffect(() => {
    const all = [...tableChanges.value.values()].reduce((sum, count) => sum + count, 0);
    const changes = table === undefined ? all : (tableChanges.value.get(table) ?? 0);
    const before = previousVersion.current;
    const now = { data: `${changes} ${clusterChanges.value}`, login: tokenProblem.value ?? "" };
    previousVersion.current = now;
    const isChanged = before.data !== now.data && !isSettled.current();
    if (before.data !== "" && (isChanged || before.login !== now.login)) poller.current?.request();
  });
  const { value, problem, retries, at, path: answeredPath } = state.value;
  const busy = answeredPath !== path || (value === null && problem === null);
  return { value, problem, retries, at, busy, refresh: () => poller.current?.request(true) };
}

type Answer<T> = Omit<Resource<T>, "busy" | "refresh" | "at"> & { readonly path: string; at: number };

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
