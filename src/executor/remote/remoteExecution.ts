import { PgTaskError } from "../../shared/errors.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { ConnectionStringError, ConnectionProblem } from "../../shared/postgres/errors.js";
import type { Run, RunResult } from "../../shared/ipc/run.js";
import { cancelMessage, formatError, timeoutMessage } from "../run/formatError.js";
import { longestTimerMs, startTimer } from "../../shared/backoff.js";
import { Execution, type OutgoingResult, type RunOutcome } from "../run/execution.js";
import { resetSql, SettingsSql, stopSql } from "../run/runSettings.sql.js";
import { sessionClosed } from "../session/pipeline.js";
import type { ServerError } from "../../shared/postgres/protocol/decode.js";
import { connectionFailure, queryCanceled } from "../../shared/postgres/sqlStates.js";
import { firstError, lastValue } from "../../shared/postgres/protocol/connection.js";
import type { RemoteConnection } from "./connectRemote.js";
import { ServerFull } from "./managerServer.js";
import { openRemoteSession, type RemoteRunContext, type RemoteSession } from "./remoteSession.js";
import { waitUntilGone, waitUntilHalfOpen } from "./remoteRunLiveness.js";
import { recordLocation, writePid } from "./remoteRunRecord.sql.js";
import { timeoutSignal } from "../../shared/timeoutSignal.js";

type EndReason = "timeout" | "abort" | "stop" | "sessionLost";

/** An error that is not the input's. `sqlstate` is that of `RunResult`. */
interface Failure {
  readonly message: string;
  readonly detail?: string | undefined;
  readonly hint?: string | undefined;
  readonly sqlstate: string | null;
}

const timeoutError: Failure = { message: timeoutMessage, sqlstate: queryCanceled };
/** What the local session is given of a run: its timeout and its args concern the other server. */
const local = { timeoutMs: 0, args: null } as const;

const maxFailedCancels = 3;

/**
 * One execution of one task on the server that its connection string names. The task stays with the local session until
 * the run ends.
 *
 *     local: clock, settings ─ remote: connect ─ run ─ close ─ local: clock, reset
 *
 * With `count` or `live`, the remote session is kept for a next run of the same group and connection string. To end a run
 * early, the attempt to connect is aborted, or, later, a cancel request is sent to the remote server.
 */
export class RemoteExecution {
  wasQueued = false;
  reportsStart = false;
  readonly #run: Run;
  readonly #remote: string;
  readonly #context: RemoteRunContext;
  readonly #connecting = new AbortController();
  #endReason: EndReason | null = null;
  #execution: Execution | null = null;
  #failedCancels = 0;
  /** Nothing ran. */
  #hasConnectFailed = false;
  /** Whether a cancel request may still reach the server after the run has ended. */
  #mayBeCancelledLate = false;

  constructor(run: Run, remote: string, context: RemoteRunContext) {
    this.#run = run;
    this.#remote = remote;
    this.#context = context;
  }

  get id(): string {
    return this.#run.id;
  }

  abort(): void {
    this.#end("abort");
  }

  stop(): void {
    this.#end("stop");
  }

  sessionLost(): void {
    this.#end("sessionLost");
  }

  /** Remote runs are not cancelled through the manager. */
  cancelAnswered(): void {}

  /** @throws PgTaskError CONNECTION_LOST if the outcome of the run is unknown */
  async execute(): Promise<RunOutcome> {
    const { wire } = this.#context.session;
    const startedAt = performance.now();
    const settings = await wire.query(new SettingsSql(this.#context).sql({ ...this.#run, ...local }));
    const start = lastValue(settings);
    if (start === null) throw sessionClosed(`settings were refused: ${settings.error?.message ?? ""}`);
    this.#context.onStart(start);
    const result = await this.#attempt(startedAt);
    return await this.#finish(start, result);
  }

  #end(reason: EndReason): void {
    if (this.#endReason !== null && reason !== "sessionLost") return;
    this.#endReason = reason;
    this.#connecting.abort();
    if (reason === "stop") this.#execution?.stop();
    else this.#execution?.abort();
  }

  async #attempt(startedAt: number): Promise<OutgoingResult> {
    const { timeoutMs } = this.#run;
    const stopTimer = timeoutMs > 0 ? startTimer(timeoutMs, () => this.#end("timeout")) : (): void => {};
    let session: RemoteSession;
    try {
      const run = { ...this.#run, remote: this.#remote };
      session = await openRemoteSession(run, this.#context, this.#connecting.signal);
    } catch (error) {
      if (this.#endReason !== null) return this.#endedResult(this.#endReason);
      if (error instanceof ServerFull) return { ...this.#releasedResult, serverFull: true };
      if (!(error instanceof ConnectionProblem || error instanceof ConnectionStringError)) {
        throw error;
      }
      this.#hasConnectFailed = true;
      // An invalid connection string stays invalid, so a retry would be pointless.
      return this.#failedResult(
        error instanceof ConnectionProblem ? error : { message: error.message, sqlstate: null },
      );
    } finally {
      stopTimer();
    }
    const remainingMs = timeoutMs > 0 ? Math.max(1, timeoutMs - (performance.now() - startedAt)) : 0;
    return await this.#runOn(session, remainingMs);
  }

  async #runOn(session: RemoteSession, timeoutMs: number): Promise<OutgoingResult> {
    const { schema, table, outputLimit } = this.#context;
    const { target, connection } = session;
    const { wire } = connection;
    const execution: Execution = new Execution(
      { ...this.#run, timeoutMs },
      {
        wire,
        messages: null,
        settings: new SettingsSql({
          schema,
          table,
          ...omitUndefined({ name: target.applicationName ?? undefined }),
        }),
        outputLimit,
        proof: null,
        requestCancel: () => void this.#cancel(connection, execution),
      },
    );
    this.#execution = execution;
    const runEnded = new AbortController();
    let keep = false;
    try {
      const { process } = connection;
      const [refusal] = await Promise.all([this.#recordLocation(JSON.stringify(process)), this.#showPid(process.pid)]);
      if (refusal !== null) return this.#failedResult({ message: refusal.message, sqlstate: refusal.code });
      // Checked last, because a cancel may come too late once the run has been sent.
      if (this.#endReason !== null) return this.#endedResult(this.#endReason);
      void this.#watch(session, runEnded.signal);
      const { result, loss } = await session.run(execution);
      // `stale` concerns the remote session, not the local session.
      const { stale = false, ...rest } = result;
      keep = loss === null && !stale && result.outcome === "ended" && this.#canKeepSession;
      return rest;
    } catch (error) {
      if (!(error instanceof PgTaskError)) throw error;
      return await this.#connectionLost(session, execution, error);
    } finally {
      runEnded.abort();
      this.#execution = null;
      execution.discardOutput();
      const { group } = this.#run;
      if (keep) this.#context.sessionCache.keep({ remote: this.#remote, group, session });
      else await session.close();
    }
  }

  /** A session must not be kept if a late cancel of this run could hit the next one. */
  get #canKeepSession(): boolean {
    return this.#run.dedicated && !this.#mayBeCancelledLate && this.#endReason !== "sessionLost";
  }

  async #watch({ target, connection, managerServer }: RemoteSession, signal: AbortSignal): Promise<void> {
    if (await waitUntilHalfOpen(target, connection, { managerServer, signal })) {
      connection.wire.destroy(sessionClosed("its connection is half-open"));
    }
  }

  async #showPid(pid: number): Promise<void> {
    const { session, schema, table, onPidNotShown, log } = this.#context;
    const error = await writePid(session, { schema, table, id: this.id }, pid);
    if (error === "locked") onPidNotShown(pid);
    else if (error !== null) {
      log.debug({ id: this.id, reason: error.message }, "pid of remote task not written");
    }
  }

  async #recordLocation(location: string): Promise<ServerError | null> {
    const { session, ledgers } = this.#context;
    const ledger = ledgers[this.#run.ledger - 1] ?? ledgers[0];
    return await recordLocation(session.wire, ledger, this.#run, location);
  }

  /** Closes the connection if several requests in a row do not reach the server, or if the local session is lost. */
  async #cancel(connection: RemoteConnection, execution: Execution): Promise<void> {
    const arrived = await connection.cancel();
    this.#failedCancels = arrived ? 0 : this.#failedCancels + 1;
    this.#mayBeCancelledLate ||= !arrived;
    const giveUp = this.#failedCancels === maxFailedCancels || this.#endReason === "sessionLost";
    if (giveUp) connection.wire.destroy(sessionClosed("the run cannot be cancelled"));
    execution.cancelAnswered();
  }

  /** Cancels the run and waits until its backend is gone, or until `lostRunTimeoutMs` has passed. */
  async #connectionLost(
    { target, connection, managerServer }: RemoteSession,
    execution: Execution,
    reason: PgTaskError,
  ): Promise<RunResult> {
    this.#context.log.warn(
      { id: this.id, server: connection.serverLabel, reason: reason.message },
      "remote task lost its connection",
    );
    const { text = null, failure = null } = execution.attempt?.output ?? {};
    if (failure !== null) return this.#failedResult({ message: failure, sqlstate: null }, text ?? "");
    if (execution.cancellation.reason === "timeout") return this.#failedResult(timeoutError, text ?? "");
    if (this.#endReason === null) {
      const signal = timeoutSignal(Math.min(this.#context.lostRunTimeoutMs, longestTimerMs), this.#connecting.signal);
      await connection.cancel();
      const gone = await waitUntilGone(target, connection.process, {
        managerServer,
        signal,
      });
      if (!gone && this.#endReason === null) await this.#recordLocation("");
    }
    if (this.#endReason === null && this.#run.endsWithConnection) {
      const message = "connection to the remote server was lost";
      return this.#failedResult({ message, detail: reason.message, sqlstate: connectionFailure }, text ?? "");
    }
    if (this.#endReason === null || this.#endReason === "sessionLost") throw reason;
    return this.#endedResult(this.#endReason);
  }

  #endedResult(reason: EndReason): RunResult {
    if (reason === "timeout") return this.#failedResult(timeoutError);
    if (reason === "stop") return this.#failedResult({ message: cancelMessage, sqlstate: queryCanceled });
    return this.#releasedResult;
  }

  get #releasedResult(): Extract<RunResult, { outcome: "released" }> {
    return { outcome: "released", session: this.#run.session, id: this.id };
  }

  #failedResult({ message, detail, hint, sqlstate }: Failure, output = ""): RunResult {
    const { session, id, input } = this.#run;
    const error = formatError(
      { severity: "ERROR", code: sqlstate ?? "", message, ...omitUndefined({ detail, hint }) },
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
      sqlstate,
      committed: false,
    };
  }

  /**
   * Reads the clock and resets the local session. If this fails, the session is lost, but not the result of the run.
   */
  async #finish(start: string, result: OutgoingResult): Promise<RunOutcome> {
    const { wire } = this.#context.session;
    const run = { ...this.#run, ...local };
    let stop: string | null = null;
    let loss: PgTaskError | null = null;
    try {
      const reading = wire.query(stopSql(run));
      const resets = resetSql(run).map((text) => wire.query(text));
      stop = lastValue(await reading);
      const failure = firstError(await Promise.all(resets));
      if (failure !== null) loss = sessionClosed(`reset failed: ${failure.message}`);
    } catch (error) {
      if (!(error instanceof PgTaskError)) throw error;
      loss = error;
    }
    if (result.outcome === "released") return { result, loss };
    // What ended the local session, for example a restart of the server, may also be the reason why connecting failed.
    if (loss !== null && this.#hasConnectFailed) return { result: this.#releasedResult, loss };
    return { result: { ...result, start, stop }, loss };
  }
}
