import { PgTaskError, toReport } from "../shared/errors.js";
import type { ExecutorParameters, FromExecutor, ToExecutor } from "../shared/ipc/executorMessages.js";
import type { Run } from "../shared/ipc/run.js";
import { Connector } from "./session/connector.js";
import { Outbox } from "./output/outbox.js";
import type { ForwardingLog } from "./forwardingLog.js";
import { ConnectionPermits } from "./remote/managerServer.js";
import { RemoteLedgers } from "./remote/remoteLedgers.js";
import type { OutgoingResult } from "./run/execution.js";
import { ExecutorSession, type SessionMessage } from "./session/session.js";

/** The messages that neither carry a handover nor end the thread. */
type SimpleMessage = Exclude<ToExecutor, { type: "start" | "reconfigure" | "dispatch" | "stop" }>;

/**
 * Holds sessions, and executes the runs that the manager dispatches to them. A run for a session that is unknown or
 * takes no more runs is released, and a recall from an unknown session is answered with null.
 */
export class Executor {
  /** Shared with the sessions and the connector. `reconfigure` changes it in place. */
  readonly #parameters: { -readonly [K in keyof ExecutorParameters]: ExecutorParameters[K] };
  readonly #connector: Connector;
  readonly #outbox: Outbox;
  readonly #log: ForwardingLog;
  readonly #connectionPermits: ConnectionPermits;
  readonly #remoteLedgers: RemoteLedgers;
  readonly #sessions = new Map<number, ExecutorSession>();
  #stopped: Promise<void> | null = null;

  constructor(
    parameters: ExecutorParameters,
    options: { readonly send: (message: FromExecutor) => void; readonly log: ForwardingLog },
  ) {
    this.#parameters = { ...parameters };
    this.#connector = new Connector(this.#parameters);
    this.#outbox = new Outbox(options.send);
    this.#log = options.log;
    this.#connectionPermits = new ConnectionPermits((message) => this.#outbox.send(message));
    this.#remoteLedgers = new RemoteLedgers(options.log);
  }

  /** Schema and names of database objects stay the same. */
  reconfigure({ target, serverStart, outputLimit, isSuperuser, lostRunTimeoutMs, logins }: ExecutorParameters): void {
    Object.assign(this.#parameters, { target, serverStart, outputLimit, isSuperuser, lostRunTimeoutMs, logins });
  }

  dispatch(runs: readonly Run[]): void {
    for (const run of runs) {
      if (this.#sessions.get(run.session)?.dispatch(run) === true) continue;
      this.#log.warn({ session: run.session, id: run.id }, "session not open, run released");
      this.#addResult({ outcome: "released", session: run.session, id: run.id });
    }
  }

  receive(message: SimpleMessage): void {
    switch (message.type) {
      case "open":
        for (const session of message.sessions) this.#open(session, message.group, message.role ?? null);
        break;
      case "cancel":
        this.#sessions.get(message.session)?.cancel(message.id);
        break;
      case "cancelAnswered":
        this.#sessions.get(message.session)?.cancelAnswered(message.id);
        break;
      case "pipelinePermit":
        this.#sessions.get(message.session)?.setPermit(message.permit);
        break;
      case "recall":
        for (const runs of message.runs) {
          const sent = this.#sessions.get(runs.session)?.recall(runs) ?? null;
          this.#outbox.send({ type: "recalled", ...runs, sent });
        }
        break;
      case "largeOutputWritten":
        this.#outbox.largeOutputWritten();
        break;
      case "close":
        for (const session of message.sessions) this.#sessions.get(session)?.close();
        break;
      case "drop":
        for (const session of message.sessions) void this.#sessions.get(session)?.stop();
        break;
      case "reportSilence":
        for (const session of message.sessions) void this.#sessions.get(session)?.reportSilence();
        break;
      case "findRemoteProcess":
        void this.#findRemoteProcess(message);
        break;
      case "connectionPermit":
        this.#connectionPermits.answer(message.number, message.granted);
        break;
      case "abort":
        for (const session of this.#sessions.values()) session.abort();
        break;
    }
  }

  async stop(): Promise<void> {
    this.#stopped ??= Promise.all([...this.#sessions.values()].map((session) => session.stop())).then(() =>
      this.#outbox.sendAll(),
    );
    await this.#stopped;
  }

  #open(id: number, group: string, role: string | null): void {
    if (this.#sessions.has(id)) {
      this.#log.warn({ session: id }, "session is already open");
      return;
    }
    if (this.#stopped !== null) {
      const reason = new PgTaskError("CONNECTION_FAILED", "the executor is stopped");
      this.#outbox.send({ type: "openFailed", session: id, reason: toReport(reason) });
      return;
    }
    const session = new ExecutorSession(id, {
      parameters: this.#parameters,
      role,
      connect: () => this.#connector.open(group, role),
      send: (message) => this.#sendFromSession(message),
      sendResult: (result) => this.#addResult(result),
      connectionPermits: this.#connectionPermits,
      remoteLedgers: this.#remoteLedgers,
      log: this.#log,
    });
    this.#sessions.set(id, session);
  }

  #sendFromSession(message: SessionMessage): void {
    const { type, session } = message;
    if (type === "openFailed" || type === "lost" || type === "closed") this.#sessions.delete(session);
    this.#outbox.send(message);
  }

  #addResult(result: OutgoingResult): void {
    this.#outbox.sendResult(result, this.#sessions.get(result.session)?.isIdle !== false);
  }

  async #findRemoteProcess(request: Extract<ToExecutor, { type: "findRemoteProcess" }>): Promise<void> {
    const { number, remote, process: remoteProcess } = request;
    const { target: managerTarget, isSuperuser, logins } = this.#parameters;
    const warn = (message: string): void => this.#log.warn({}, message);
    const { findRemoteProcess } = await import("./remote/remoteRunLiveness.js");
    const context = { managerTarget, isSuperuser: isSuperuser && logins === undefined, env: process.env, warn };
    const state = await findRemoteProcess(remote, remoteProcess, context, this.#connectionPermits);
    this.#outbox.send({ type: "remoteProcessFound", number, state });
  }
}
