import { fileURLToPath } from "node:url";
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { Piscina } from "piscina";
import { sleep } from "../../shared/backoff.js";
import { errorMessage, PgTaskError } from "../../shared/errors.js";
import { HandshakeSender } from "../../shared/ipc/handshake.js";
import type { Log } from "../../shared/log.js";
import { packageFile } from "../../shared/packageFile.js";
import type {
  Dispatch,
  ExecutorParameters,
  ExecutorThreadData,
  FromExecutor,
  ToExecutor,
} from "../../shared/ipc/executorMessages.js";
import type { RemoteProcess, Run } from "../../shared/ipc/run.js";

// One CommonJS file, because Node.js aborts the whole process if a thread is terminated while it loads ES modules for
// Piscina, and because one file loads faster than many.
const entry = fileURLToPath(packageFile("dist/src/executor/host.cjs"));

/** The largest value that the setting `pg_conf.threads` can have. */
const maxThreads = 1024;

/** How long threads may take to close their sessions when they are stopped, in ms. */
const maxStopMs = 5_000;

/** A thread of the Piscina pool, from the beginning to the end of its work. */
export interface ExecutorThread {
  readonly number: number;
  readonly pool: Piscina;
  readonly port: MessagePort;
  readonly sender: HandshakeSender;
  threadId: number | null;
  readonly ended: Promise<void>;
}

interface ExecutorEvents {
  message(thread: ExecutorThread, message: SessionMessage): void;
  /** The thread asks for a connection permit for a remote task, or reports what became of that connection. */
  connectionRequest(thread: ExecutorThread, message: ConnectionRequestMessage): void;
  /** The thread and its connections are gone. The reason is null if the thread was told to stop. */
  ended(thread: ExecutorThread, reason: PgTaskError | null): void;
}

type ConnectionRequestMessage = Extract<FromExecutor, { type: "requestConnectionPermit" | "connectionPermitUsed" }>;

export type SessionMessage = Exclude<
  FromExecutor,
  { type: "hello" | "log" | "remoteProcessFound" } | ConnectionRequestMessage
>;

export interface ExecutorThreadsOptions {
  readonly parameters: () => ExecutorParameters;
  /** The time within which a thread has to acknowledge a payload, in ms. */
  readonly closeMs: () => number;
  readonly events: ExecutorEvents;
  readonly log: Log;
  readonly threadLog: Log;
}

/**
 * The executor threads of one manager. They belong to a Piscina pool that exists only while there is work.
 *
 * Each thread gets a single Piscina task, which lasts as long as the thread is used. Runs are sent to it in batches over
 * a separate channel. Therefore a crash rejects the task of exactly the thread that crashed.
 *
 *   start ──▶ running ──stop──▶ ended
 *                └── crash, no acknowledgement in time ──▶ ended with a reason
 */
export class ExecutorThreads {
  readonly #options: ExecutorThreadsOptions;
  readonly #threads = new Set<ExecutorThread>();
  #pool: Piscina | null = null;
  #started = 0;
  readonly #remoteQueries = new Map<number, { thread: ExecutorThread; answer: (gone: boolean | null) => void }>();
  #queryCount = 0;

  constructor(options: ExecutorThreadsOptions) {
    this.#options = options;
  }

  get threads(): ReadonlySet<ExecutorThread> {
    return this.#threads;
  }

  start(): ExecutorThread {
    const pool = (this.#pool ??= this.#createPool());
    const { port1: port, port2 } = new MessageChannel();
    const sender = new HandshakeSender();
    const data: ExecutorThreadData = { port: port2 };
    const work: Promise<unknown> = pool.run(data, { transferList: [port2] });
    const number = (this.#started += 1);
    const ended = work.then(
      () => this.#ended(thread, null),
      (error: unknown) => this.#ended(thread, error),
    );
    const thread: ExecutorThread = { number, pool, port, sender, ended, threadId: null };
    this.#threads.add(thread);
    this.#options.log.debug({ thread: number }, "executor thread started");
    port.on("message", (message: FromExecutor) => this.#receive(thread, message));
    this.#handOver(thread, this.#options.parameters(), "start");
    return thread;
  }

  /** Terminates the thread if it does not acknowledge the runs in time. */
  dispatch(thread: ExecutorThread, runs: readonly Run[]): void {
    const dispatch: Dispatch = { runs };
    this.#handOver(thread, dispatch, "dispatch");
  }

  reconfigure(): void {
    for (const thread of this.#threads) {
      this.#handOver(thread, this.#options.parameters(), "reconfigure");
    }
  }

  /** Arrives after everything that was dispatched before it. */
  send(thread: ExecutorThread, message: ToExecutor): void {
    thread.port.postMessage(message);
  }

  /** Asks the server of a remote run whether its backend is gone. Null if that cannot be determined. */
  async findRemoteProcess(run: { readonly remote: string; readonly process: RemoteProcess }): Promise<boolean | null> {
    const [thread = this.start()] = this.#threads;
    const number = (this.#queryCount += 1);
    const answer = new Promise<boolean | null>((resolve) =>
      this.#remoteQueries.set(number, { thread, answer: resolve }),
    );
    this.send(thread, {
      type: "findRemoteProcess",
      number,
      remote: run.remote,
      process: run.process,
    });
    return await answer;
  }

  async end(): Promise<void> {
    const pool = this.#pool;
    if (pool === null) return;
    this.#pool = null;
    const threads = [...this.#threads];
    for (const thread of threads) this.send(thread, { type: "stop" });
    const timeout = new AbortController();
    const stopped = Promise.all(threads.map((thread) => thread.ended)).then(() => timeout.abort());
    await Promise.race([stopped, sleep(maxStopMs, timeout.signal)]);
    await pool.destroy();
    this.#options.log.debug({ threads: threads.length }, "executor threads stopped");
  }

  #createPool(): Piscina {
    const pool = new Piscina({
      filename: entry,
      minThreads: 0,
      // The caller limits the number of threads itself, because the limit may change.
      maxThreads,
      concurrentTasksPerWorker: 1,
      // By default, Piscina drops a thread whose work has ended, without waiting until the thread has exited.
      idleTimeout: Infinity,
      // By default, Piscina blocks the event loop of an idle thread, but the thread's connections need the event loop.
      atomics: "disabled",
    });
    pool.on("error", (error: unknown) => this.#abandon(pool, error));
    // If the destroyed thread had a Piscina task, that task is rejected before the check runs.
    pool.on("workerDestroy", () => setImmediate(() => this.#checkStarts(pool)));
    return pool;
  }

  /**
   * Abandons the pool if it has fewer threads than Piscina tasks. Such a pool does not recover: if a thread dies before
   * it is ready, with or without an error, Piscina leaves the Piscina task of that thread queued forever.
   */
  #checkStarts(pool: Piscina): void {
    const wanted = [...this.#threads].filter((thread) => thread.pool === pool);
    if (wanted.length <= pool.threads.length) return;
    this.#abandon(pool, new PgTaskError("THREAD_DIED", "a thread ended before it was ready"));
  }

  /** Destroys the pool, because nothing else rejects its queued Piscina tasks. */
  #abandon(pool: Piscina, error: unknown): void {
    if (this.#pool !== pool) return;
    this.#options.log.error({ reason: errorMessage(error) }, "executor thread failed to start");
    this.#pool = null;
    void pool.destroy();
  }

  #handOver(thread: ExecutorThread, payload: object, type: "start" | "reconfigure" | "dispatch"): void {
    thread.sender
      .send(
        payload,
        (handover) => thread.port.postMessage({ type, ...handover } satisfies ToExecutor),
        this.#options.closeMs(),
      )
      .catch((error: unknown) => this.#terminate(thread, error));
  }

  #receive(thread: ExecutorThread, message: FromExecutor): void {
    if (message.type === "hello") thread.threadId = message.threadId;
    else if (message.type === "log") this.#options.threadLog[message.level](message.fields, message.message);
    else if (message.type === "remoteProcessFound") this.#answerQuery(message.number, message.gone);
    else if (message.type === "requestConnectionPermit" || message.type === "connectionPermitUsed")
      this.#options.events.connectionRequest(thread, message);
    else this.#options.events.message(thread, message);
  }

  #answerQuery(number: number, gone: boolean | null): void {
    this.#remoteQueries.get(number)?.answer(gone);
    this.#remoteQueries.delete(number);
  }

  #terminate(thread: ExecutorThread, reason: unknown): void {
    if (!this.#threads.has(thread)) return;
    this.#options.log.error({ thread: thread.number, reason: errorMessage(reason) }, "executor thread terminated");
    const known = new Set([...this.#threads].map((each) => each.threadId));
    for (const worker of thread.pool.threads) {
      // If the thread never sent `hello`, its id is not known here. Then its worker is one whose id belongs to no known
      // thread.
      const neverSaidHello = thread.threadId === null && !known.has(worker.threadId);
      if (worker.threadId === thread.threadId || neverSaidHello) void worker.terminate();
    }
  }

  #ended(thread: ExecutorThread, error: unknown): void {
    if (!this.#threads.delete(thread)) return;
    thread.port.close();
    for (const [number, query] of this.#remoteQueries) {
      if (query.thread === thread) this.#answerQuery(number, null);
    }
    const reason = new PgTaskError("THREAD_DIED", `executor thread ${thread.number} ended: ${errorMessage(error)}`, {
      cause: error,
    });
    thread.sender.fail(reason);
    this.#options.events.ended(thread, error === null ? null : reason);
  }
}
