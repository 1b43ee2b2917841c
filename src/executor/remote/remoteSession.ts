import type { PgTaskError } from "../../shared/errors.js";
import { Pipeline, sessionClosed } from "../session/pipeline.js";
import type { Execution, RunOutcome } from "../run/execution.js";
import type { RemoteConnection } from "./connectRemote.js";
import type { ManagerServer } from "./managerServer.js";
import type { RemoteTarget } from "./remoteTarget.js";
import { timeoutSignal } from "../../shared/timeoutSignal.js";

const answerMs = 5_000;
/**
 * A session on a remote server. It runs one task at a time, and can be kept for the next one (`count`, `live`). A run that
 * loses the connection fails. A kept session that loses it is not usable.
 */
export class RemoteSession {
  readonly target: RemoteTarget;
  readonly connection: RemoteConnection;
  readonly managerServer: ManagerServer;
  readonly #pipeline: Pipeline;
  #settle: {
    readonly finish: (outcome: RunOutcome) => void;
    readonly fail: (reason: PgTaskError) => void;
  } | null = null;
  #lost: PgTaskError | null = null;
  #isStateSaved = false;

  constructor(target: RemoteTarget, connection: RemoteConnection, managerServer: ManagerServer) {
    this.target = target;
    this.connection = connection;
    this.managerServer = managerServer;
    const { wire } = connection;
    const pipeline = new Pipeline(wire, {
      finished: (_, outcome) => this.#settle?.finish(outcome),
      lost() {},
      retry: (run) => pipeline.send(run, null),
      started() {},
      changed() {},
    });
    this.#pipeline = pipeline;
    void wire.ended.then((reason) => this.#connectionLost(reason));
  }

  /** @throws PgTaskError CONNECTION_LOST if the outcome of the run is unknown */
  async run(execution: Execution): Promise<RunOutcome> {
    if (this.#lost !== null) throw this.#lost;
    this.#isStateSaved = execution.run.save;
    try {
      return await new Promise((finish, fail) => {
        this.#settle = { finish, fail };
        this.#pipeline.send(execution, null);
      });
    } finally {
      // Allows the output to be garbage-collected.
      this.#settle = null;
    }
  }

  /** Prepares the session for its next run. Closes it if it cannot be used. */
  async isUsable(signal: AbortSignal): Promise<boolean> {
    const { wire } = this.connection;
    const limited = timeoutSignal(answerMs, signal);
    const onAbort = (): void => wire.destroy(noAnswer);
    limited.addEventListener("abort", onAbort, { once: true });
    try {
      if (await this.connection.prepareNextRun(this.#isStateSaved)) return true;
      await wire.close();
      return false;
    } finally {
      limited.removeEventListener("abort", onAbort);
    }
  }

  async close(): Promise<void> {
    await this.connection.wire.close();
  }

  async #connectionLost(reason: PgTaskError): Promise<void> {
    this.#lost = reason;
    await this.#pipeline.connectionLost(reason);
    this.#settle?.fail(reason);
  }
}

const noAnswer = sessionClosed("no answer from the kept remote session");

interface CachedSession {
  readonly remote: string;
  readonly group: string;
  readonly session: RemoteSession;
}

/** Holds the remote session that a local session keeps for the next task of the same group and connection string. */
export class RemoteSessionCache {
  #kept: CachedSession | null = null;

  keep(kept: CachedSession): void {
    this.#kept = kept;
  }

  /** Removes and returns the session kept for this connection string and group. Closes one that is kept for another. */
  async take({ remote, group }: Omit<CachedSession, "session">): Promise<RemoteSession | null> {
    const kept = this.#kept;
    if (kept !== null && kept.remote === remote && kept.group === group) {
      this.#kept = null;
      return kept.session;
    }
    await this.end();
    return null;
  }

  async end(): Promise<void> {
    const kept = this.#kept;
    this.#kept = null;
    await kept?.session.close();
  }
}
