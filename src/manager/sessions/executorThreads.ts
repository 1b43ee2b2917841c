import { fileURLToPath } from "node:url";
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { Piscina } from "piscina";
import { sleep } from "../../shared/backoff.js";
import { PgTaskError } from "../../shared/errors.js";
import { HandshakeSender } from "../../shared/ipc/handshake/sender.js";
import type { Log } from "../../shared/log.js";
import type {
  Dispatch,
  ExecutorParameters,
  ExecutorThreadData,
  FromExecutor,
  RemoteProcess,
  Run,
  ToExecutor,
} from "../../shared/ipc/messages.js";

const entry = fileURLToPath(new URL("../../executor/thread.js", import.meta.url));

/** The largest value of pg_conf.threads. */
const mostThreads = 1024;

/** How long threads that run nothing any more may take to end their sessions, in ms. */
const longestStopMs = 5_000;

/** One executor thread: a place in the pool that stays taken until the thread's work ends. */
export interface ExecutorThread {
  readonly number: number;
  readonly pool: Piscina;
  readonly port: MessagePort;
  readonly sender: HandshakeSender;
  threadId: number | null;
  /** Settles when the thread's work has ended. */
  readonly ended: Promise<void>;
}

export interface ExecutorEvents {
  message(thread: ExecutorThread, message: SessionMessage): void;
  /** It asks for room for a connection of a remote task, or says what became of it. */
  room(thread: ExecutorThread, message: RoomMessage): void;
  /** The thread is gone and its connections with it; without a reason because it was told to. */
  ended(thread: ExecutorThread, reason: PgTaskError | null): void;
}

export type RoomMessage = Extract<FromExecutor, { type: "room" | "entered" }>;

/** What an executor says of its sessions. */
export type SessionMessage = Exclude<
  FromExecutor,
  { type: "hello" | "log" | "sought" } | RoomMessage
>;

export interface ExecutorThreadsOptions {
  readonly parameters: () => ExecutorParameters;
  /** How long a thread may take to take a payload, in ms. */
  readonly closeMs: () => number;
  readonly events: ExecutorEvents;
  readonly log: Log;
  /** The threads' own. */
  readonly threadLog: Log;
}

/**
 * The executor threads of one manager, in a Piscina pool that exists only while there is work.
 *
 * A thread gets one task of the pool, which lasts as long as the thread is used: sessions live in
 * it and runs reach them in batches over a channel of its own. So the pool's queue is never longer
 * than its threads, and a crash rejects exactly that thread's task.
 */
export class ExecutorThreads {
  readonly #options: ExecutorThreadsOptions;
  readonly #threads = new Set<ExecutorThread>();
  #pool: Piscina | null = null;
  #started = 0;
  /** Questions about remote runs that threads have not answered. */
  readonly #seeking = new Map<
    number,
    { thread: ExecutorThread; answer: (gone: boolean | null) => void }
  >();
  #questions = 0;

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
    const data: ExecutorThreadData = { port: port2, buffer: sender.buffer };
    const work: Promise<unknown> = pool.run(data, { transferList: [port2] });
    const number = (this.#started += 1);
    const ended = work.then(
      () => this.#ended(thread, null),
      (error: unknown) => this.#ended(thread, error),
    );
    const thread: ExecutorThread = { number, pool, port, sender, ended, threadId: null };
    this.#threads.add(thread);
    this.#options.log.debug({ thread: number }, "executor thread starts");
    port.on("message", (message: FromExecutor) => this.#receive(thread, message));
    this.#hand(thread, this.#options.parameters(), "start");
    return thread;
  }

  /** Hands runs over; a thread that does not take them in time is ended, and reported as died. */
  dispatch(thread: ExecutorThread, runs: readonly Run[]): void {
    const dispatch: Dispatch = { runs };
    this.#hand(thread, dispatch, "dispatch");
  }

  /** Hands the parameters as they are now to the threads there are. */
  reconfigure(): void {
    for (const thread of this.#threads) {
      this.#hand(thread, this.#options.parameters(), "reconfigure");
    }
  }

  /** Behind all that was dispatched before: what is told of a run that has not come yet would have no effect. */
  tell(thread: ExecutorThread, message: ToExecutor): void {
    thread.sender.behind(() => thread.port.postMessage(message));
  }

  /** Asks a remote run's own server whether its process is gone; null when that is not to be known. */
  async seek(run: {
    readonly remote: string;
    readonly place: RemoteProcess;
  }): Promise<boolean | null> {
    const [thread = this.start()] = this.#threads;
    const number = (this.#questions += 1);
    const answer = new Promise<boolean | null>((resolve) =>
      this.#seeking.set(number, { thread, answer: resolve }),
    );
    this.tell(thread, { type: "seek", number, remote: run.remote, place: run.place });
    return await answer;
  }

  /** Ends all threads in order, then the pool: no thread is left when it resolves. */
  async end(): Promise<void> {
    const pool = this.#pool;
    if (pool === null) return;
    this.#pool = null;
    const threads = [...this.#threads];
    for (const thread of threads) this.tell(thread, { type: "stop" });
    const late = new AbortController();
    const stopped = Promise.all(threads.map((thread) => thread.ended)).then(() => late.abort());
    await Promise.race([stopped, sleep(longestStopMs, late.signal)]);
    await pool.destroy();
    this.#options.log.debug({ threads: threads.length }, "executor threads ended");
  }

  #createPool(): Piscina {
    const pool = new Piscina({
      filename: entry,
      minThreads: 0,
      // How many there are is decided by whoever starts them, since that may change meanwhile.
      maxThreads: mostThreads,
      concurrentTasksPerWorker: 1,
      // Its default drops a thread whose work has ended without waiting until it is gone.
      idleTimeout: Infinity,
      // Piscina's default blocks an idle thread's event loop, on which its connections live.
      atomics: "disabled",
    });
    pool.on("error", (error: unknown) => this.#abandon(pool, error));
    // Looked at when the thread's own task, if it had one, has been rejected.
    pool.on("workerDestroy", () => setImmediate(() => this.#checkStarts(pool)));
    return pool;
  }

  /** A thread that dies before it is ready leaves its task queued for ever, with or without an error. */
  #checkStarts(pool: Piscina): void {
    const wanted = [...this.#threads].filter((thread) => thread.pool === pool);
    if (wanted.length <= pool.threads.length) return;
    this.#abandon(pool, new PgTaskError("THREAD_DIED", "a thread ended before it was ready"));
  }

  /** Only destroying the pool rejects what is queued in it. */
  #abandon(pool: Piscina, error: unknown): void {
    if (this.#pool !== pool) return;
    this.#options.log.error({ reason: reasonOf(error) }, "executor thread failed to start");
    this.#pool = null;
    void pool.destroy();
  }

  #hand(thread: ExecutorThread, payload: object, type: "start" | "reconfigure" | "dispatch"): void {
    thread.sender
      .send(
        payload,
        (reference) => thread.port.postMessage({ type, ...reference } satisfies ToExecutor),
        this.#options.closeMs(),
      )
      .catch((error: unknown) => this.#kill(thread, error));
  }

  #receive(thread: ExecutorThread, message: FromExecutor): void {
    if (message.type === "hello") thread.threadId = message.threadId;
    else if (message.type === "log")
      this.#options.threadLog[message.level](message.fields, message.message);
    else if (message.type === "sought") this.#found(message.number, message.gone);
    else if (message.type === "room" || message.type === "entered")
      this.#options.events.room(thread, message);
    else this.#options.events.message(thread, message);
  }

  #found(number: number, gone: boolean | null): void {
    this.#seeking.get(number)?.answer(gone);
    this.#seeking.delete(number);
  }

  /** Ends a thread that answers no more; its connections end with it. */
  #kill(thread: ExecutorThread, reason: unknown): void {
    if (!this.#threads.has(thread)) return;
    this.#options.log.error(
      { thread: thread.number, reason: reasonOf(reason) },
      "executor thread is ended",
    );
    const known = new Set([...this.#threads].map((each) => each.threadId));
    for (const worker of thread.pool.threads) {
      // One that never said hello is known by nobody.
      const hangs = thread.threadId === null ? !known.has(worker.threadId) : false;
      if (worker.threadId === thread.threadId || hangs) void worker.terminate();
    }
  }

  #ended(thread: ExecutorThread, error: unknown): void {
    if (!this.#threads.delete(thread)) return;
    thread.port.close();
    for (const [number, seeking] of this.#seeking) {
      if (seeking.thread === thread) this.#found(number, null);
    }
    const reason = new PgTaskError(
      "THREAD_DIED",
      `executor thread ${thread.number} ended: ${reasonOf(error)}`,
      { cause: error },
    );
    thread.sender.fail(reason);
    this.#options.events.ended(thread, error === null ? null : reason);
  }
}

const reasonOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);
