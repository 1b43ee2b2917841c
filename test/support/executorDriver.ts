import { after } from "node:test";
import { Executor } from "../../src/executor/executor.js";
import { ForwardingLog } from "../../src/executor/forwardingLog.js";
import type { ConnectionTarget } from "../../src/shared/config/types.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { lockClasses } from "../../src/shared/postgres/advisoryLocks.js";
import { randomKey } from "../../src/shared/randomKey.js";
import type {
  BackendIdentity,
  ExecutorParameters,
  FromExecutor,
  OutputFormat,
  Run,
  RunResult,
} from "../../src/shared/ipc/messages.js";

/** The defaults of the task table's columns. */
export const defaultFormat: OutputFormat = {
  header: true,
  string: true,
  delimiter: "\t",
  quote: "",
  escape: "",
  null: "\\N",
};

export type Ended = Extract<RunResult, { outcome: "ended" }>;

/** Stands in for the manager of an executor. */
export class ExecutorDriver {
  readonly executor: Executor;
  /** Everything the executor has said, in order. */
  readonly messages: FromExecutor[] = [];
  /** Lines of its log. */
  readonly lines: string[] = [];
  /** Answers a request to cancel; replace it to answer otherwise. */
  onCancel: (session: number, id: string) => void = (session, id) => void this.cancel(session, id);
  /** Whether the server has room for the connections of remote tasks. */
  hasRoom = true;
  /** Whether it says of large outputs by itself that they are written. */
  readonly writesAtOnce: boolean = true;
  readonly #admin: Client;
  readonly #permits = new Map<number, number>();
  readonly #backends = new Map<number, BackendIdentity>();
  readonly #watchers = new Set<() => void>();
  #lastId = 0;

  /** @param admin a connection that may cancel the sessions' backends */
  constructor(
    target: ConnectionTarget,
    admin: Client,
    parameters: Partial<ExecutorParameters> = {},
  ) {
    this.#admin = admin;
    this.executor = new Executor(
      {
        target,
        schema: "public",
        table: "task",
        finish: "public.task_finish",
        reset: "public.task_reset",
        ledgers: ["public.task_ledger_1", "public.task_ledger_2"],
        outputLimit: 64 << 20,
        superuser: true,
        resetMs: 3_600_000,
        ...parameters,
      },
      {
        send: (message) => this.#receive(message),
        log: new ForwardingLog((entry) => {
          if (entry.type === "log" && entry.level === "warn") this.lines.push(entry.message);
        }),
      },
    );
    after(() => this.executor.stop());
  }

  /** Opens a session. */
  async open(session: number): Promise<BackendIdentity> {
    const from = this.messages.length;
    this.executor.open([session], "group");
    const message = await this.#watch(() =>
      this.messages
        .slice(from)
        .find(
          (each) =>
            (each.type === "opened" || each.type === "unopened") && each.session === session,
        ),
    );
    if (message.type === "opened") {
      await this.permit(session);
      return message.backend;
    }
    throw new Error(message.type === "unopened" ? message.reason.message : message.type);
  }

  /** Lets a session send runs behind others. */
  async permit(session: number): Promise<void> {
    const permit = randomKey();
    this.#permits.set(session, permit);
    await this.#admin.query("SELECT pg_advisory_lock($1, $2)", [lockClasses.permit, permit]);
    this.executor.permit(session, permit);
  }

  /** Has the server begin nothing more that a session has sent behind others. */
  async revoke(session: number): Promise<void> {
    const permit = this.#permits.get(session);
    await this.#admin.query("SELECT pg_advisory_unlock($1, $2)", [lockClasses.permit, permit]);
  }

  /** Makes a run with an id of its own. */
  make(session: number, input: string, options: Partial<Run> = {}): Run {
    const id = String(++this.#lastId);
    const run = { session, id, input, group: "group", timeoutMs: 0, keep: false, save: false };
    const proof = { atomic: false, take: "0", ledger: 1 as const };
    return { ...run, ...proof, format: defaultFormat, remote: null, ...options };
  }

  /** Runs something to its end. */
  async run(session: number, input: string, options: Partial<Run> = {}): Promise<Ended> {
    const run = this.make(session, input, options);
    this.executor.dispatch([run]);
    const result = await this.result(run.id);
    if (result.outcome !== "ended") throw new Error(`run ${run.id} was returned`);
    if (result.spoiled === true) await this.#renew(session);
    return result;
  }

  /** Has a session begin anew, as the manager does where a run has left something in it. */
  async #renew(session: number): Promise<void> {
    const from = this.messages.length;
    this.executor.close([session]);
    await this.#watch(() =>
      this.messages.slice(from).find((each) => each.type === "closed" && each.session === session),
    );
    await this.open(session);
  }

  /** How a run came out, when it has. */
  async result(id: string): Promise<RunResult> {
    return await this.#watch(() => this.results().find((result) => result.id === id));
  }

  results(): RunResult[] {
    return this.messages.flatMap((message) => (message.type === "results" ? message.results : []));
  }

  /** Says that large outputs are written, and keeps them as text. */
  #unpack(message: FromExecutor): FromExecutor {
    if (message.type !== "results") return message;
    const results = message.results.map((result): RunResult => {
      if (result.outcome === "returned" || result.large === undefined) return result;
      if (this.writesAtOnce) setImmediate(() => this.executor.written());
      const { large, ...rest } = result;
      return { ...rest, output: Buffer.from(large).toString() };
    });
    return { ...message, results };
  }

  /** The first message of this type that fits, when it has come. */
  async heard<T extends FromExecutor["type"]>(
    type: T,
    fits: (message: Extract<FromExecutor, { type: T }>) => boolean = () => true,
  ): Promise<Extract<FromExecutor, { type: T }>> {
    const isOfType = (message: FromExecutor): message is Extract<FromExecutor, { type: T }> =>
      message.type === type;
    return await this.#watch(() => this.messages.filter(isOfType).find(fits));
  }

  /** Resolves when a session's backend is in the middle of a query that contains this text. */
  async running(session: number, text: string): Promise<void> {
    await this.#state(session, "active", text);
  }

  /** Resolves when a session's backend waits, and the last query it had contains this text. */
  async idle(session: number, text: string): Promise<void> {
    await this.#state(session, "idle", text);
  }

  /** Resolves when a session's backend has nothing to do in a transaction that has failed. */
  async failed(session: number): Promise<void> {
    await this.#state(session, "idle in transaction (aborted)", "");
  }

  /** Resolves when a session's backend waits for a lock in a query that contains this text. */
  async blocked(session: number, text: string): Promise<void> {
    await this.#state(session, "active", text, "Lock");
  }

  /** Resolves when it waits for a lock in a function that was called without a query. */
  async blockedInCall(session: number): Promise<void> {
    await this.#state(session, "fastpath function call", "", "Lock");
  }

  async #state(session: number, state: string, text: string, waitsFor?: string): Promise<void> {
    const { pid } = this.backend(session);
    for (;;) {
      const { rowCount } = await this.#admin.query(
        "SELECT FROM pg_stat_activity WHERE pid = $1 AND state = $2 AND strpos(query, $3) > 0 " +
          "AND ($4::text IS NULL OR wait_event_type IS NOT DISTINCT FROM $4)",
        [pid, state, text, waitsFor],
      );
      if (rowCount === 1) return;
    }
  }

  /** Does what the manager does on `cancel`. */
  async cancel(session: number, id: string): Promise<void> {
    await this.#admin.query("SELECT pg_cancel_backend($1)", [this.backend(session).pid]);
    this.executor.cancelled(session, id);
  }

  backend(session: number): BackendIdentity {
    const backend = this.#backends.get(session);
    if (backend === undefined) throw new Error(`session ${session} has never been open`);
    return backend;
  }

  #receive(message: FromExecutor): void {
    this.messages.push(this.#unpack(message));
    if (message.type === "opened") this.#backends.set(message.session, message.backend);
    if (message.type === "room")
      this.executor.room({ type: "room", number: message.number, room: this.hasRoom });
    if (message.type === "cancel") this.onCancel(message.session, message.id);
    for (const watcher of this.#watchers) watcher();
  }

  #watch<T>(look: () => T | undefined): Promise<T> {
    return new Promise((resolve) => {
      const watcher = () => {
        const found = look();
        if (found === undefined) return;
        this.#watchers.delete(watcher);
        resolve(found);
      };
      this.#watchers.add(watcher);
      watcher();
    });
  }
}
