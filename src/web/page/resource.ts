import { useSignal, useSignalEffect, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { changes, clusterChanges } from "./liveEvents.js";
import { gate, read, ApiRefusal } from "./apiClient.js";

export interface Resource<T> {
  /** The last answer; null before the first. */
  readonly value: T | null;
  /** Why the last question has no answer: what is there is an older one. */
  readonly problem: string | null;
  /** When it was answered, in ms since 1970; 0 before the first answer. */
  readonly at: number;
  /** What is there is the answer to another path: this one's is on the way. */
  readonly busy: boolean;
  /** Asks again at once. */
  readonly refresh: () => void;
}

/**
 * What the API answers at `path`, asked again when the table changed (any table without one), when
 * `everyMs` have passed, and at most once in `leastMs`.
 */
export function useResource<T>(
  path: string,
  { table, leastMs = 400, everyMs }: { table?: string; leastMs?: number; everyMs?: number } = {},
): Resource<T> {
  const state: Signal<Answer<T>> = useSignal({ path, value: null, problem: null, at: 0 });
  const poller = useRef<Poller | null>(null);
  useEffect(() => {
    const own = new Poller(async (signal) => {
      try {
        const value = await read<T>(path, signal);
        state.value = { path, value, problem: null, at: Date.now() };
        return true;
      } catch (error) {
        if (signal.aborted) return true;
        const problem = error instanceof ApiRefusal ? error.message : String(error);
        const known = state.peek();
        const { value, at } = known.path === path ? known : { value: null, at: 0 };
        state.value = { path, value, problem, at };
        return error instanceof ApiRefusal && error.status >= 400 && error.status < 500;
      }
    }, leastMs);
    poller.current = own;
    own.ask();
    const timer = everyMs === undefined ? null : setInterval(() => own.ask(), everyMs);
    return () => {
      if (timer !== null) clearInterval(timer);
      own.end();
    };
  }, [path]);
  const seen = useRef<unknown>(null);
  useSignalEffect(() => {
    const all = [...changes.value.values()].reduce((sum, count) => sum + count, 0);
    const news = table === undefined ? all : (changes.value.get(table) ?? 0);
    const now = `${news} ${clusterChanges.value} ${gate.value ?? ""}`;
    if (seen.current !== null && seen.current !== now) poller.current?.ask();
    seen.current = now;
  });
  const { value, problem, at, path: answered } = state.value;
  const busy = answered !== path || (value === null && problem === null);
  return { value, problem, at, busy, refresh: () => poller.current?.ask(true) };
}

interface Answer<T> {
  readonly path: string;
  readonly value: T | null;
  readonly problem: string | null;
  readonly at: number;
}

/** How soon it is asked again what had no answer, in ms. */
const againMs = 5_000;

/** One question at a time, and a pause between two. */
class Poller {
  /** False: it has to be asked again. */
  readonly #work: (signal: AbortSignal) => Promise<boolean>;
  readonly #leastMs: number;
  readonly #ending = new AbortController();
  #asking = false;
  #again = false;
  #askedAt = -Infinity;
  #timer: number | undefined;

  constructor(work: (signal: AbortSignal) => Promise<boolean>, leastMs: number) {
    this.#work = work;
    this.#leastMs = leastMs;
  }

  ask(now = false): void {
    if (this.#ending.signal.aborted || document.visibilityState === "hidden") return;
    if (this.#asking) {
      this.#again = true;
      return;
    }
    const pauseMs = now ? 0 : this.#askedAt + this.#leastMs - performance.now();
    window.clearTimeout(this.#timer);
    if (pauseMs <= 0) void this.#ask();
    else this.#timer = window.setTimeout(() => void this.#ask(), pauseMs);
  }

  end(): void {
    window.clearTimeout(this.#timer);
    this.#ending.abort();
  }

  async #ask(): Promise<void> {
    this.#asking = true;
    this.#again = false;
    this.#askedAt = performance.now();
    const answered = await this.#work(this.#ending.signal);
    this.#asking = false;
    if (this.#again) this.ask();
    else if (!answered) this.#timer = window.setTimeout(() => this.ask(), againMs);
  }
}
