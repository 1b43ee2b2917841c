import { PgTaskError } from "../../shared/errors.js";
import type { ConnectionTarget } from "../../shared/config/types.js";
import { ConnectionStringError } from "../../shared/postgres/connectionString/error.js";
import type { BackendIdentity, Run, RunResult } from "../../shared/ipc/messages.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { messageLimit } from "../session/connector.js";
import { formatError } from "../run/formatError.js";
import { startTimer } from "../../shared/longTimer.js";
import type { ForwardingLog } from "../forwardingLog.js";
import {
  cancelMessage,
  Execution,
  timeoutMessage,
  type OutgoingResult,
  type RunOutcome,
} from "../run/execution.js";
import {
  applicationName,
  resetSql,
  SettingsText,
  stopSql,
  type TaskTableName,
} from "../run/sessionSql.js";
import {
  firstError,
  lastValue,
  type ProtocolConnection,
} from "../../shared/postgres/protocol/connection.js";
import type { RemoteConnection } from "./connectRemote.js";
import {
  homeServer,
  ServerFull,
  ManagerServer,
  type ConnectionPermits,
} from "./managerServerLimit.js";
import { RemoteSession, type RemoteSessionCache } from "./remoteSession.js";
import { ConnectionProblem } from "../../shared/postgres/errors.js";
import { describe, type RemoteTarget } from "./remoteTarget.js";

/** Whose run it is, and from where it goes to its server. */
export interface RemoteRunPlace extends TaskTableName {
  /** The session that has the task: its clock counts, and with its loss the run is over. */
  readonly home: { readonly wire: ProtocolConnection; readonly backend: BackendIdentity };
  /** What the session keeps on another server between its runs. */
  readonly kept: RemoteSessionCache;
  readonly desk: ConnectionPermits;
  readonly own: ConnectionTarget;
  readonly superuser: boolean;
  readonly outputLimit: number;
  /** The ledger into which it is entered where the run is: quoted, with its schema. */
  readonly ledger: string;
  readonly log: ForwardingLog;
  /** How long it is waited for a server to say whether a lost run still goes on there, in ms. */
  readonly resetMs: number;
  /** Gets told the clock of the session when the run begins. */
  readonly begun: (start: string) => void;
  /** Gets told which process of the remote server runs it, where the task's row could not be. */
  readonly runsIn: (pid: number) => void;
}

/** Why a run is to end before its time. */
type Ending = "timeout" | "abort" | "stop" | "home";

/** How many cancels in a row may fail to reach the server before its connection is given up. */
const mostFailedCancels = 3;

/** How long a run waits for its own row when somebody has locked it, in ms. */
const lockWaitMs = 10;
const lockNotAvailable = "55P03";

/**
 * One execution of one task on the server that its connection string names, beside a session that
 * keeps the task meanwhile.
 *
 *     clock and settings here ─ connect there ─ run there ─ close there ─ clock and reset here
 *
 * With `count` or `live` the session there is kept instead of closed, and the next run of the same group and string
 * that this session gets takes it. It gives up connecting at once when it is to end; what runs there is cancelled by a cancel request
 * to that server.
 *
 * What it takes to reach other servers is loaded when it is needed: a thread that is started for a
 * task is to be there soon.
 */
export class RemoteExecution {
  /** Whether others were before it when it came. */
  waited = false;
  readonly #run: Run;
  readonly #remote: string;
  readonly #place: RemoteRunPlace;
  readonly #connecting = new AbortController();
  #ending: Ending | null = null;
  #execution: Execution | null = null;
  #failedCancels = 0;
  /** Whether its server could not be reached, so that nothing of it was run. */
  #unreached = false;
  /** Whether a cancel may still be on its way. */
  #cancelAtLarge = false;

  constructor(run: Run, remote: string, place: RemoteRunPlace) {
    this.#run = run;
    this.#remote = remote;
    this.#place = place;
  }

  get id(): string {
    return this.#run.id;
  }

  /** Makes the run end; without effect when it has ended. */
  abort(): void {
    this.#end("abort");
  }

  /** Makes the run end as one that a user cancelled; without effect when it has ended. */
  stop(): void {
    this.#end("stop");
  }

  /** The session that has it is lost: what it runs is not wanted any more. */
  forsake(): void {
    this.#end("home");
  }

  /** Cancels of a remote run do not go over the manager. */
  cancelled(): void {}

  /** @throws PgTaskError CONNECTION_LOST when it is not known how the run came out */
  async execute(): Promise<RunOutcome> {
    const { wire } = this.#place.home;
    const begun = performance.now();
    const settings = await wire.ask(
      new SettingsText(this.#place).sql({ ...this.#run, timeoutMs: 0 }),
    );
    const start = lastValue(settings);
    if (start === null) throw lost(`its settings were refused: ${settings.error?.message ?? ""}`);
    this.#place.begun(start);
    const result = await this.#attempt(begun);
    return await this.#finish(start, result);
  }

  #end(ending: Ending): void {
    if (this.#ending !== null && ending !== "home") return;
    this.#ending = ending;
    this.#connecting.abort();
    if (ending === "stop") this.#execution?.stop();
    else this.#execution?.abort();
  }

  async #attempt(begun: number): Promise<OutgoingResult> {
    const { timeoutMs } = this.#run;
    const stopTimer =
      timeoutMs > 0 ? startTimer(timeoutMs, () => this.#end("timeout")) : (): void => {};
    let session: RemoteSession;
    try {
      session = await this.#open();
    } catch (error) {
      if (this.#ending !== null) return this.#ended(this.#ending);
      if (error instanceof ServerFull) return { ...this.#returned, crowded: true };
      if (!(error instanceof ConnectionProblem || error instanceof ConnectionStringError)) {
        throw error;
      }
      this.#unreached = true;
      return this.#failed(error);
    } finally {
      stopTimer();
    }
    const leftMs = timeoutMs > 0 ? Math.max(1, timeoutMs - (performance.now() - begun)) : 0;
    return await this.#runThere(session, leftMs);
  }

  /** The session that was kept for it, if that is still there, or a new one. */
  async #open(): Promise<RemoteSession> {
    const kept = await this.#place.kept.take({ remote: this.#remote, group: this.#run.group });
    if (kept !== null && (await kept.isUsable(this.#connecting.signal))) return kept;
    this.#connecting.signal.throwIfAborted();
    const { home, own } = this.#place;
    const [target, server] = await Promise.all([this.#resolve(), homeServer(home.wire, own.port)]);
    return await this.#connect(target, new ManagerServer(this.#place.desk, server));
  }

  async #resolve(): Promise<RemoteTarget> {
    const { own, superuser, log } = this.#place;
    const { resolveRemote } = await import("./resolveRemoteTarget.js");
    const target = await resolveRemote(this.#remote, {
      own,
      superuser,
      env: process.env,
      warn: (message) => log.warn({ id: this.id }, message),
    });
    log.debug({ id: this.id, server: describe(target) }, "remote task connects");
    return target;
  }

  async #connect(target: RemoteTarget, ownServer: ManagerServer): Promise<RemoteSession> {
    const { connectRemote } = await import("./connectRemote.js");
    this.#connecting.signal.throwIfAborted();
    const connection = await connectRemote(target, {
      applicationName: `${applicationName(this.#place)} ${this.#run.group}`,
      messageLimit: messageLimit(this.#place.outputLimit),
      ownServer,
      signal: this.#connecting.signal,
    });
    return new RemoteSession(target, connection, ownServer);
  }

  async #runThere(session: RemoteSession, timeoutMs: number): Promise<OutgoingResult> {
    const { schema, table, outputLimit } = this.#place;
    const { target, connection } = session;
    const { wire } = connection;
    const execution: Execution = new Execution(
      { ...this.#run, timeoutMs },
      {
        wire,
        messages: null,
        settings: new SettingsText({
          schema,
          table,
          ...(target.applicationName === null ? {} : { name: target.applicationName }),
        }),
        outputLimit,
        proof: null,
        cancel: () => void this.#cancel(connection, execution),
      },
    );
    this.#execution = execution;
    const over = new AbortController();
    let keep = false;
    try {
      const { place } = connection;
      const [refusal] = await Promise.all([
        this.#note(JSON.stringify(place)),
        this.#show(place.pid),
      ]);
      if (refusal !== null) return this.#failed({ message: refusal });
      // Once it is sent a cancel may come too late.
      if (this.#ending !== null) return this.#ended(this.#ending);
      void this.#watch(session, over.signal);
      const { result, loss } = await session.run(execution);
      // What it may have left is in its session there.
      const { spoiled = false, ...rest } = result;
      keep = loss === null && !spoiled && result.outcome === "ended" && this.#keepable;
      return rest;
    } catch (error) {
      if (!(error instanceof PgTaskError)) throw error;
      return await this.#lost(session, execution, error);
    } finally {
      over.abort();
      this.#execution = null;
      execution.drop();
      const { group } = this.#run;
      if (keep) this.#place.kept.keep({ remote: this.#remote, group, session });
      else await session.close();
    }
  }

  /** Whether its session there may run another: what is still to cancel this run would hit that one. */
  get #keepable(): boolean {
    return this.#run.keep && !this.#cancelAtLarge && this.#ending !== "home";
  }

  async #watch(
    { target, connection, ownServer }: RemoteSession,
    signal: AbortSignal,
  ): Promise<void> {
    const { isHalfOpen } = await import("./remoteWatchdog.js");
    if (await isHalfOpen(target, connection, { ownServer, signal })) {
      connection.wire.destroy(lost("it is cut off from its server"));
    }
  }

  /**
   * Enters where it runs, before it does: whoever finds the task without this process knows whom to ask.
   *
   * @param place empty when nobody has to ask any more.
   * @returns what the server has against it.
   */
  async #note(place: string): Promise<string | null> {
    const { home, ledger } = this.#place;
    const values = `${this.#run.id}, ${this.#run.take}, false, ${literal(place)}`;
    const { error, status } = await home.wire.ask(
      "BEGIN READ WRITE; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; " +
        `INSERT INTO ${ledger} (id, take, running, place) VALUES (${values}); COMMIT`,
    );
    if (status !== "I") await home.wire.ask("ROLLBACK");
    return error?.message ?? null;
  }

  /**
   * Has the task's row say which process runs it, before it does. A lock of somebody's is waited for no
   * longer than a moment; a trigger of the user's that is against it does not keep the task from running.
   */
  async #show(pid: number): Promise<void> {
    const { home, schema, table, runsIn } = this.#place;
    const { error, status } = await home.wire.ask(
      `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = ${lockWaitMs}; SET LOCAL statement_timeout = 0; ` +
        "SET LOCAL synchronous_commit = off; " +
        `UPDATE ${identifier(schema)}.${identifier(table)} SET pid = ${pid} ` +
        `WHERE id = ${this.id} AND owner = ${literal(home.backend.owner)}; COMMIT`,
    );
    if (status !== "I") await home.wire.ask("ROLLBACK");
    if (error?.code === lockNotAvailable) runsIn(pid);
    else if (error !== null)
      this.#place.log.debug(
        { id: this.id, reason: error.message },
        "process of a remote task is not shown",
      );
  }

  /** Asks the server to cancel; one that cannot be reached for that is given up. */
  async #cancel(connection: RemoteConnection, execution: Execution): Promise<void> {
    const arrived = await connection.cancel();
    this.#failedCancels = arrived ? 0 : this.#failedCancels + 1;
    this.#cancelAtLarge ||= !arrived;
    const useless = this.#failedCancels === mostFailedCancels || this.#ending === "home";
    if (useless) connection.wire.destroy(lost("the run was given up"));
    execution.cancelled();
  }

  /** The connection ended in the middle: whether the run still goes on there only the server knows. */
  async #lost(
    { target, connection, ownServer }: RemoteSession,
    execution: Execution,
    reason: PgTaskError,
  ): Promise<RunResult> {
    this.#place.log.warn(
      { id: this.id, server: connection.where, reason: reason.message },
      "connection of a remote task lost",
    );
    const { text, failure } = execution.output;
    if (failure !== null) return this.#failed({ message: failure }, text ?? "");
    if (execution.cancelReason === "timeout")
      return this.#failed({ message: timeoutMessage }, text ?? "");
    if (this.#ending === null) {
      const signal = AbortSignal.any([
        this.#connecting.signal,
        AbortSignal.timeout(Math.min(this.#place.resetMs, 2 ** 31 - 1)),
      ]);
      await connection.cancel();
      const { awaitGone } = await import("./remoteProcess.js");
      const gone = await awaitGone(target, connection.place, { ownServer, signal });
      if (!gone && this.#ending === null) await this.#note("");
    }
    if (this.#ending === null || this.#ending === "home") throw reason;
    return this.#ended(this.#ending);
  }

  #ended(ending: Ending): RunResult {
    if (ending === "timeout") return this.#failed({ message: timeoutMessage });
    if (ending === "stop") return this.#failed({ message: cancelMessage });
    return this.#returned;
  }

  get #returned(): Extract<RunResult, { outcome: "returned" }> {
    return { outcome: "returned", session: this.#run.session, id: this.id };
  }

  #failed(
    {
      message,
      detail,
      hint,
    }: { message: string; detail?: string | undefined; hint?: string | undefined },
    output = "",
  ): RunResult {
    const { session, id, input } = this.#run;
    const error = formatError(
      {
        severity: "ERROR",
        code: "",
        message,
        ...(detail === undefined ? {} : { detail }),
        ...(hint === undefined ? {} : { hint }),
      },
      input,
    );
    return {
      outcome: "ended",
      session,
      id,
      start: "",
      stop: null,
      output,
      error,
      committed: false,
    };
  }

  /**
   * The run is over and how it came out is known: what fails now costs the session, not the result; but
   * for one that did not get to its server.
   */
  async #finish(start: string, result: OutgoingResult): Promise<RunOutcome> {
    const { wire } = this.#place.home;
    const run = { ...this.#run, timeoutMs: 0 };
    let stop: string | null = null;
    let loss: PgTaskError | null = null;
    try {
      const reading = wire.ask(stopSql(run));
      const resets = resetSql(run).map((text) => wire.ask(text));
      stop = lastValue(await reading);
      const failure = firstError(await Promise.all(resets));
      if (failure !== null) loss = lost(`it could not be reset: ${failure.message}`);
    } catch (error) {
      if (!(error instanceof PgTaskError)) throw error;
      loss = error;
    }
    if (result.outcome === "returned") return { result, loss };
    // What ended this session, a restart say, may well be what kept it from there.
    if (loss !== null && this.#unreached) return { result: this.#returned, loss };
    return { result: { ...result, start, stop }, loss };
  }
}

function lost(why: string): PgTaskError {
  return new PgTaskError("CONNECTION_LOST", `the session was given up: ${why}`);
}
