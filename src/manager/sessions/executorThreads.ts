import { MessageChannel, type MessagePort } from "node:worker_threads";
import type { Piscina } from "piscina";
import { sleep } from "../../shared/backoff.js";
import { errorMessage, PgTaskError } from "../../shared/errors.js";
import { HandshakeSender } from "../../shared/ipc/handshake.js";
import type { Log } from "../../shared/log.js";
import type {
  Dispatch,
  ExecutorParameters,
  ExecutorThreadData,
  FromExecutor,
  ToExecutor,
} from "../../shared/ipc/executorMessages.js";
import type { RemoteRunState, Run } from "../../shared/ipc/run.js";
import type { ExecutorPools } from "./executorPools.js";

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

type RemoteProcessQuery = Pick<Extract<ToExecutor, { type: "findRemoteProcess" }>, "remote" | "process">;

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
  readonly pools: ExecutorPools;
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
  readonly #remoteQueries = new Map<
    number,
    { thread: ExecutorThread; answer: (state: RemoteRunState | null) => void }
  >();
  #queryCount = 0;

  constructor(options: ExecutorThreadsOptions) {
    this.#options = options;
  }

  get threads(): ReadonlySet<ExecutorThread> {
    return this.#threads;
  }

  start(): ExecutorThread {
    const pool = (this.#pool ??= this.#takePool());
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

  /** Asks the server of a remote run what has become of it. Null if that cannot be determined. */
  async findRemoteProcess({ remote, process }: RemoteProcessQuery): Promise<RemoteRunState | null> {
    const [thread = this.start()] = this.#threads;
    const number = (this.#queryCount += 1);
    const answer = new Promise<RemoteRunState | null>((resolve) =>
      this.#remoteQueries.set(number, { thread, answer: resolve }),
    );
    this.send(thread, { type: "findRemoteProcess", number, remote, process });
    return await answer;
  }

  /** Ends the threads, or stops them and leaves one idle, so that it can be used again soon, by this manager or the next. */
  async end({ keepsOne = false } = {}): Promise<void> {
    const pool = this.#pool;
    if (pool === null) return;
    const threads = [...this.#threads];
    this.#releasePool();
    for (const thread of threads) this.send(thread, { type: "stop" });
    const timeout = new AbortController();
    const stopped = Promise.all(threads.map((thread) => thread.ended)).then(() => timeout.abort());
    await Promise.race([stopped, sleep(maxStopMs, timeout.signal)]);
    if (keepsOne && timeout.signal.aborted) await this.#options.pools.giveBack(pool);
    else await pool.destroy();
    this.#options.log.debug({ threads: threads.length }, "executor threads stopped");
  }

  #takePool(): Piscina {
    return this.#options.pools.take().on("error", this.#failed).on("workerDestroy", this.#workerEnded);
  }

  #releasePool(): void {
    this.#pool?.off("error", this.#failed).off("workerDestroy", this.#workerEnded);
    this.#pool = null;
  }

  readonly #failed = (error: unknown): void => this.#abandon(error);

  /** If the destroyed thread had a Piscina task, that task is rejected before the check runs. */
  readonly #workerEnded = (): void => void setImmediate(() => this.#checkStarts());

  /**
   * Abandons the pool if it has fewer threads than Piscina tasks. Such a pool does not recover: if a thread dies before
   * it is ready, with or without an error, Piscina leaves the Piscina task of that thread queued forever.
   */
  #checkStarts(): void {
    const pool = this.#pool;
    if (pool === null) return;
    const wanted = [...this.#threads].filter((thread) => thread.pool === pool);
    if (wanted.length <= pool.threads.length) return;
    this.#abandon(new PgTaskError("THREAD_DIED", "a thread ended before it was ready"));
  }

  /** Destroys the pool, because nothing else rejects its queued Piscina tasks. */
  #abandon(error: unknown): void {
    const pool = this.#pool;
    if (pool === null) return;
    this.#options.log.error({ reason: errorMessage(error) }, "executor thread failed to start");
    this.#releasePool();
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
    else if (message.type === "remoteProcessFound") this.#answerQuery(message.number, message.state);
    else if (message.type === "requestConnectionPermit" || message.type === "connectionPermitUsed")
      this.#options.events.connectionRequest(thread, message);
    else this.#options.events.message(thread, message);
  }

  #answerQuery(number: number, state: RemoteRunState | null): void {
    this.#remoteQueries.get(number)?.answer(state);
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
