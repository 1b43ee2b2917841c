import { PgTaskError } from "../../shared/errors.js";
import { ConnectionStringError, ConnectionProblem } from "../../shared/postgres/errors.js";
import type { RemoteProcess, Run } from "../../shared/ipc/run.js";
import { longestTimerMs, startTimer } from "../../shared/backoff.js";
import { Execution, type OutgoingResult, type RunOutcome } from "../run/execution.js";
import { resetSql, SettingsSql, stopSql } from "../run/runSettings.sql.js";
import { sessionClosed } from "../session/pipeline.js";
import type { ServerError } from "../../shared/postgres/protocol/decode.js";
import { connectionFailure } from "../../shared/postgres/sqlStates.js";
import { firstError, lastValue } from "../../shared/postgres/protocol/connection.js";
import type { RemoteConnection } from "./connectRemote.js";
import { ServerFull } from "./managerServer.js";
import { openRemoteSession, shownServer, type RemoteRunContext, type RemoteSession } from "./remoteSession.js";
import { remoteProof, type RunLedger } from "./remoteLedger.sql.js";
import { waitForEnd, waitUntilHalfOpen } from "./remoteRunLiveness.js";
import { endedResult, failedResult, releasedResult, timeoutError, type EndReason } from "./remoteResults.js";
import { recordLocation, writePid } from "./remoteRunRecord.sql.js";
import { timeoutSignal } from "../../shared/timeoutSignal.js";

/** What the local session is given of a run: its timeout, args and results concern the other server. */
const local = { timeoutMs: 0, args: null, results: null } as const;

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
      if (this.#endReason !== null) return endedResult(this.#run, this.#endReason);
      if (error instanceof ServerFull) return { ...releasedResult(this.#run), serverFull: true };
      if (!(error instanceof ConnectionProblem || error instanceof ConnectionStringError)) {
        throw error;
      }
      this.#hasConnectFailed = true;
      // An invalid connection string stays invalid, so a retry would be pointless.
      return failedResult(
        this.#run,
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
    const runEnded = new AbortController();
    void this.#watch(session, runEnded.signal);
    const ledger = await this.#openLedger(session);
    const execution: Execution = new Execution(
      { ...this.#run, timeoutMs },
      {
        wire,
        messages: null,
        settings: new SettingsSql({ schema, table, name: target.applicationName }),
        outputLimit,
        proof: ledger === null ? null : remoteProof(ledger),
        requestCancel: () => void this.#cancel(connection, execution),
      },
    );
    this.#execution = execution;
    let keep = false;
    try {
      const process = this.#processOf(session, ledger);
      const [refusal] = await Promise.all([this.#recordLocation(JSON.stringify(process)), this.#showPid(process.pid)]);
      if (refusal !== null) return failedResult(this.#run, { message: refusal.message, sqlstate: refusal.code });
      // Checked last, because a cancel may come too late once the run has been sent.
      if (this.#endReason !== null) return endedResult(this.#run, this.#endReason);
      const { result, loss } = await session.run(execution);
      // These concern the remote session, not the local session.
      const { stale = false, objectsMissing = false, ...rest } = result;
      keep = loss === null && !stale && !objectsMissing && result.outcome === "ended" && this.#canKeepSession;
      if (objectsMissing) {
        // The ledger was dropped. The run was rolled back, and the next one creates the ledger again.
        this.#context.remoteLedgers.forget();
        return releasedResult(this.#run);
      }
      if (loss === null && ledger !== null) {
        const { session: here, remoteLedgers } = this.#context;
        await remoteLedgers.clean(ledger, { remote: wire, local: here.wire, schema, table });
      }
      return rest;
    } catch (error) {
      if (!(error instanceof PgTaskError)) throw error;
      return await this.#connectionLost(session, execution, { ledger, reason: error });
    } finally {
      runEnded.abort();
      this.#execution = null;
      execution.discardOutput();
      const { group } = this.#run;
      if (keep) this.#context.sessionCache.keep({ remote: this.#remote, group, session });
      else await session.close();
    }
  }

  /** Null if the run cannot write a proof on the other server. */
  async #openLedger({ target, connection, home }: RemoteSession): Promise<RunLedger | null> {
    if (!this.#run.atomic || home === null) return null;
    try {
      const { user, database } = target;
      const task = { id: this.id, server: shownServer(this.#remote, target), login: `${user} ${database}`, home };
      return await this.#context.remoteLedgers.open(connection, task);
    } catch (error) {
      // The run meets the loss of the connection again, before it is sent.
      if (error instanceof PgTaskError) return null;
      throw error;
    }
  }

  #processOf({ target, connection }: RemoteSession, ledger: RunLedger | null): RemoteProcess {
    const { process } = connection;
    if (ledger === null) return process;
    const { id, claimedAt } = this.#run;
    return {
      ...process,
      proof: {
        ledger: ledger.key,
        serverStart: connection.known.serverStartedAt,
        user: target.user,
        home: ledger.home,
        id,
        claimedAt,
      },
    };
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

  async #connectionLost(
    session: RemoteSession,
    execution: Execution,
    { ledger, reason }: { readonly ledger: RunLedger | null; readonly reason: PgTaskError },
  ): Promise<OutgoingResult> {
    const { serverLabel: server } = session.connection;
    this.#context.log.warn({ id: this.id, server, reason: reason.message }, "remote task lost its connection");
    const { text, failure } = execution.attempt?.output ?? { text: null, failure: null };
    if (failure !== null) return failedResult(this.#run, { message: failure, sqlstate: null }, text ?? "");
    const mayBeCommitted = execution.attempt?.mayBeProven === true;
    const timedOut = execution.cancellation.reason === "timeout";
    if (timedOut && !mayBeCommitted) return failedResult(this.#run, timeoutError, text ?? "");
    const end = this.#endReason === null ? await this.#waitForEnd(session, ledger) : null;
    if (end === "committed") return this.#committedResult(execution, reason);
    // The manager asks on.
    if (end === null && (mayBeCommitted || (ledger !== null && this.#endReason === null))) throw reason;
    if (timedOut) return failedResult(this.#run, timeoutError, text ?? "");
    return this.#lostResult(reason, text);
  }

  /** Cancels the run and waits until it is known how it has ended, or until `lostRunTimeoutMs` has passed. */
  async #waitForEnd(session: RemoteSession, ledger: RunLedger | null): Promise<"committed" | "gone" | null> {
    const { target, connection, managerServer } = session;
    const signal = timeoutSignal(Math.min(this.#context.lostRunTimeoutMs, longestTimerMs), this.#connecting.signal);
    await connection.cancel();
    const end = await waitForEnd(target, this.#processOf(session, ledger), { managerServer, signal });
    if (end === null && ledger === null && this.#endReason === null) await this.#recordLocation("");
    return end;
  }

  #lostResult(reason: PgTaskError, output: string | null): OutgoingResult {
    if (this.#endReason === null && this.#run.endsWithConnection) {
      const message = "connection to the remote server was lost";
      return failedResult(this.#run, { message, detail: reason.message, sqlstate: connectionFailure }, output ?? "");
    }
    if (this.#endReason === null || this.#endReason === "sessionLost") throw reason;
    return endedResult(this.#run, this.#endReason);
  }

  /** All output has arrived, because the proof is sent behind it. */
  #committedResult(execution: Execution, reason: PgTaskError): OutgoingResult {
    const { stale: _, objectsMissing: __, ...result } = execution.result("ended", null);
    if (result.outcome !== "ended") throw reason;
    return { ...result, committed: true };
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
    if (loss !== null && this.#hasConnectFailed) return { result: releasedResult(this.#run), loss };
    return { result: { ...result, start, stop, isRemote: true }, loss };
  }
}
