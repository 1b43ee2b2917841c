import { after } from "node:test";
import { Executor } from "../../src/executor/executor.js";
import { ForwardingLog } from "../../src/executor/forwardingLog.js";
import type { ConnectionTarget } from "../../src/shared/postgres/target/target.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { lockClasses, randomLockKey } from "../../src/shared/postgres/advisoryLocks.js";
import type { ExecutorParameters, FromExecutor } from "../../src/shared/ipc/executorMessages.js";
import type { Run, RunResult } from "../../src/shared/ipc/run.js";
import { defaultRun, executorParameters } from "./executors.js";
import type { BackendIdentity } from "../../src/shared/postgres/backendIdentity.js";

export type EndedResult = Extract<RunResult, { outcome: "ended" }>;

/** Stands in for the manager of an executor. */
export class ExecutorDriver {
  readonly executor: Executor;
  readonly messages: FromExecutor[] = [];
  /** Log lines of the executor. */
  readonly lines: string[] = [];
  /** Called for each cancel request of the executor. Tests may replace it. */
  onCancel: (session: number, id: string) => void = (session, id) => void this.cancel(session, id);
  /** Whether to grant connections to remote tasks. */
  hasConnectionCapacity = true;
  /** Whether to acknowledge large outputs as written at once. */
  readonly acknowledgesLargeOutputs: boolean = true;
  readonly #admin: Client;
  readonly #permits = new Map<number, number>();
  readonly #backends = new Map<number, BackendIdentity>();
  readonly #watchers = new Set<() => void>();
  #lastId = 0;

  /** @param admin a connection that may cancel the sessions' backends */
  constructor(target: ConnectionTarget, admin: Client, parameters: Partial<ExecutorParameters> = {}) {
    this.#admin = admin;
    this.executor = new Executor(
      { ...executorParameters(target), ...parameters },
      {
        send: (message) => this.#receive(message),
        log: new ForwardingLog((entry) => {
          if (entry.type === "log" && entry.level === "warn") this.lines.push(entry.message);
        }),
      },
    );
    after(() => this.executor.stop());
  }

  async open(session: number): Promise<BackendIdentity> {
    const from = this.messages.length;
    this.executor.receive({ type: "open", sessions: [session], group: "group" });
    const message = await this.#watch(() =>
      this.messages
        .slice(from)
        .find((each) => (each.type === "opened" || each.type === "openFailed") && each.session === session),
    );
    if (message.type === "opened") {
      await this.grantPermit(session);
      return message.backend;
    }
    throw new Error(message.type === "openFailed" ? message.reason.message : message.type);
  }

  async grantPermit(session: number): Promise<void> {
    const permit = randomLockKey();
    this.#permits.set(session, permit);
    await this.#admin.query("SELECT pg_advisory_lock($1, $2)", [lockClasses.permit, permit]);
    this.executor.receive({ type: "pipelinePermit", session, permit });
  }

  /** Revokes the permit, so that the server starts no more of the session's queued runs. */
  async revokePermit(session: number): Promise<void> {
    const permit = this.#permits.get(session);
    await this.#admin.query("SELECT pg_advisory_unlock($1, $2)", [lockClasses.permit, permit]);
  }

  makeRun(session: number, input: string, options: Partial<Run> = {}): Run {
    const id = String(++this.#lastId);
    return { ...defaultRun, session, id, input, ...options };
  }

  dispatch(session: number, input: string, options: Partial<Run> = {}): Run {
    const run = this.makeRun(session, input, options);
    this.executor.dispatch([run]);
    return run;
  }

  async run(session: number, input: string, options: Partial<Run> = {}): Promise<EndedResult> {
    const run = this.dispatch(session, input, options);
    const result = await this.result(run.id);
    if (result.outcome !== "ended") throw new Error(`run ${run.id} was released`);
    if (result.stale === true) await this.#reopen(session);
    return result;
  }

  /** Closes and reopens a session, as the manager does after a run that left it stale. */
  async #reopen(session: number): Promise<void> {
    const from = this.messages.length;
    this.executor.receive({ type: "close", sessions: [session] });
    await this.#watch(() =>
      this.messages.slice(from).find((each) => each.type === "closed" && each.session === session),
    );
    await this.open(session);
  }

  async result(id: string): Promise<RunResult> {
    return await this.#watch(() => this.results().find((result) => result.id === id));
  }

  results(): RunResult[] {
    return this.messages.flatMap((message) => (message.type === "results" ? message.results : []));
  }

  /** Acknowledges large outputs, and converts them to text. */
  #readLargeOutputs(message: FromExecutor): FromExecutor {
    if (message.type !== "results") return message;
    const results = message.results.map((result): RunResult => {
      if (result.outcome === "released" || result.largeOutput === undefined) return result;
      if (this.acknowledgesLargeOutputs) setImmediate(() => this.executor.receive({ type: "largeOutputWritten" }));
      const { largeOutput: large, ...rest } = result;
      return { ...rest, output: Buffer.from(large).toString() };
    });
    return { ...message, results };
  }

  /** Waits for a message of this type for which `fits` returns true, and returns the first one. */
  async message<T extends FromExecutor["type"]>(
    type: T,
    fits: (message: Extract<FromExecutor, { type: T }>) => boolean = () => true,
  ): Promise<Extract<FromExecutor, { type: T }>> {
    const isOfType = (message: FromExecutor): message is Extract<FromExecutor, { type: T }> => message.type === type;
    return await this.#watch(() => this.messages.filter(isOfType).find(fits));
  }

  async untilRunning(session: number, text: string): Promise<void> {
    await this.#untilState(session, "active", text);
  }

  async untilIdle(session: number, text: string): Promise<void> {
    await this.#untilState(session, "idle", text);
  }

  async untilFailed(session: number): Promise<void> {
    await this.#untilState(session, "idle in transaction (aborted)", "");
  }

  async untilBlocked(session: number, text: string): Promise<void> {
    await this.#untilState(session, "active", text, "Lock");
  }

  async untilBlockedInCall(session: number): Promise<void> {
    await this.#untilState(session, "fastpath function call", "", "Lock");
  }

  async #untilState(session: number, state: string, text: string, waitsFor?: string): Promise<void> {
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

  /** Cancels a session's query and confirms it, as the manager does. */
  async cancel(session: number, id: string): Promise<void> {
    await this.#admin.query("SELECT pg_cancel_backend($1)", [this.backend(session).pid]);
    this.executor.receive({ type: "cancelAnswered", session, id });
  }

  backend(session: number): BackendIdentity {
    const backend = this.#backends.get(session);
    if (backend === undefined) throw new Error(`session ${session} has never been open`);
    return backend;
  }

  #receive(message: FromExecutor): void {
    this.messages.push(this.#readLargeOutputs(message));
    if (message.type === "opened") this.#backends.set(message.session, message.backend);
    if (message.type === "requestConnectionPermit")
      this.executor.receive({
        type: "connectionPermit",
        number: message.number,
        granted: this.hasConnectionCapacity,
      });
    if (message.type === "requestCancel") this.onCancel(message.session, message.id);
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
