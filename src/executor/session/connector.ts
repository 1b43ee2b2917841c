import { describeTarget } from "../../shared/postgres/target/target.js";
import { readOnlyError } from "../../shared/postgres/connectionErrors.js";
import { PgTaskError } from "../../shared/errors.js";
import { idleSessionName } from "../../shared/postgres/applicationNames.js";
import {
  hiddenBackendError,
  ownerSql,
  serverStartSql,
  type BackendIdentity,
} from "../../shared/postgres/backendIdentity.js";
import type { ExecutorParameters } from "../../shared/ipc/executorMessages.js";
import {
  connectionCheckSettings,
  sessionClientSettings,
  expectNoPooler,
  buildStartup,
  probeSql,
  type Startup,
  type StartupSettings,
} from "../../shared/postgres/startupOptions.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { queryCanceled } from "../../shared/postgres/sqlStates.js";
import { openProtocolConnection, type CancellableConnection } from "../../shared/postgres/openProtocolConnection.js";
import { maxOutputBytes } from "../output/outputFormatter.js";
import { PipelinedMessages, initialStateSql } from "../run/pipelinedMessages.js";
import { localProof, type Proof } from "../run/proof.sql.js";
import {
  clearSessionTimeoutSql,
  resetSql,
  SettingsSql,
  shownTimeoutMs,
  showSessionTimeoutSql,
} from "../run/runSettings.sql.js";
import { excessError, excessSql, setRoleSql, targetOf } from "./roleSession.sql.js";
import type { Answer, ProtocolConnection } from "../../shared/postgres/protocol/connection.js";

export interface OpenConnection {
  readonly wire: ProtocolConnection;
  readonly messages: PipelinedMessages;
  readonly proof: Proof;
  readonly backend: BackendIdentity;
  /** With users: cancels what the session runs, which the manager's own role may not do. Otherwise null. */
  readonly cancel: (() => Promise<unknown>) | null;
}

const settings: StartupSettings = { client_encoding: "UTF8", ...sessionClientSettings };

/** Settings from PostgreSQL 14 on, on some platforms. */
const laterSettings: StartupSettings = {
  ...settings,
  ...connectionCheckSettings,
  idle_session_timeout: 0,
};

/** Unknown name, invalid value. */
const settingRefused = new Set(["42704", "22023"]);

/** A very short statement_timeout of the database can end the first statement. */
const maxSetUps = 3;

/** Messages other than rows are kept up to this size, in bytes. */
const minMessageLimit = 1 << 20;
/** Column count and lengths of a row with the maximum number of columns, in bytes. */
const rowOverhead = 8192;

export function messageLimit(outputLimit: number): number {
  return Math.max(Math.min(outputLimit, maxOutputBytes), minMessageLimit) + rowOverhead;
}

/** Reads the backend's identity by the function behind pg_stat_activity: planning the view would take longer. */
const identitySql =
  `SELECT pg_catalog.pg_backend_pid(), ${ownerSql("activity")}, ${serverStartSql}, session_user, ` +
  "CASE WHEN current_user OPERATOR(pg_catalog.<>) session_user THEN current_user END, " +
  "CASE WHEN pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'on' THEN (" +
  "SELECT s.source FROM pg_catalog.pg_show_all_settings() AS s " +
  "WHERE s.name OPERATOR(pg_catalog.=) 'default_transaction_read_only') END " +
  "FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) AS activity";

/**
 * Where an administrator sets `default_transaction_read_only` for a whole server or database. For a role, or in a
 * connection string, it is a choice for the role's tasks, which then only read.
 */
const serverWideSources = new Set(["configuration file", "command line", "environment variable", "global", "database"]);

interface LoggedIn extends CancellableConnection {
  readonly startup: Startup;
  /** The role that the session runs tasks of. Null stands for the user of the target. */
  readonly role: string | null;
}

/** Opens connections, and remembers which settings the server knows. */
export class Connector {
  readonly #parameters: ExecutorParameters;
  #settings = laterSettings;

  constructor(parameters: ExecutorParameters) {
    this.#parameters = parameters;
  }

  /**
   * @param group the group of the first tasks, set at login so that it need not be set for each task
   * @param role with users, the role that the session runs tasks of
   * @throws PgTaskError CONNECTION_REJECTED also if the session cannot be set up
   */
  async open(group: string, role: string | null = null): Promise<OpenConnection> {
    for (let attempt = 1; ; attempt += 1) {
      const loggedIn = await this.#connect(group, role);
      try {
        return await this.#setUp(loggedIn);
      } catch (error) {
        await loggedIn.wire.close();
        const isTimeout = error instanceof PgTaskError && error.sqlState === queryCanceled;
        if (!isTimeout || attempt === maxSetUps) throw error;
      }
    }
  }

  async #connect(group: string, role: string | null): Promise<LoggedIn> {
    const { schema, table } = this.#parameters;
    const target = targetOf(this.#parameters, role);
    const options = {
      applicationName: idleSessionName(this.#parameters),
      messageLimit: () => messageLimit(this.#parameters.outputLimit),
    };
    const rolesOwn = role === null ? {} : this.#parameters.logins?.[role]?.settings;
    const own = { ...rolesOwn, "pg_task.schema": schema, "pg_task.table": table, "pg_task.group": group };
    // Concurrent attempts may change the field, so the value is read only once.
    const tried = this.#settings;
    const withSettings = async (given: StartupSettings): Promise<LoggedIn> => {
      const startup = buildStartup({ ...own, ...given });
      return { startup, role, ...(await openProtocolConnection(target, { ...options, startup })) };
    };
    try {
      return await withSettings(tried);
    } catch (error) {
      const refused = error instanceof PgTaskError ? error.sqlState : undefined;
      if (tried === settings || !settingRefused.has(refused ?? "")) throw error;
      this.#settings = settings;
      return await withSettings(settings);
    }
  }

  /** In one round trip, because many sessions may be opened at once. */
  async #setUp(loggedIn: LoggedIn): Promise<OpenConnection> {
    const { wire, startup, role } = loggedIn;
    const { schema, table } = this.#parameters;
    const qualified = `${identifier(schema)}.${identifier(table)}`;
    const [excess, ownTimeout, cleared, who, identity, initialState, ...tests] = await Promise.all([
      role === null ? null : wire.query(excessSql(role, qualified)),
      wire.query(showSessionTimeoutSql),
      wire.query(clearSessionTimeoutSql),
      wire.query(probeSql),
      wire.query(identitySql),
      wire.query(initialStateSql(this.#parameters)),
      ...this.#testSql(role).map((text) => wire.query(text)),
    ]);
    this.#expectNoExcess(role, excess);
    this.#expectSuccess(who);
    const [answered, mark] = who.rows[0] ?? [];
    // Some poolers announce no pid, which appears here as 0.
    const announced = wire.pid === 0 ? null : wire.pid;
    expectNoPooler(this.#parameters.target, announced, { pid: Number(answered), mark }, startup);
    for (const answer of [ownTimeout, cleared, identity, initialState, ...tests]) this.#expectSuccess(answer);
    const [, owner, serverStart, user = null, given = null, readOnlySource = null] = identity.rows[0] ?? [];
    this.#expectSameServer(serverStart);
    this.#expectWritable(readOnlySource);
    if (typeof owner !== "string")
      throw hiddenBackendError(this.#parameters.target, { pid: wire.pid, user: user ?? "", role: given });
    const session = {
      owner,
      role,
      initialState: initialState.rows[0] ?? [],
      ownTimeoutMs: shownTimeoutMs(ownTimeout.rows[0]?.[0] ?? "0"),
    };
    const messages = new PipelinedMessages(this.#parameters, session);
    const cancel = role === null ? null : () => loggedIn.cancel();
    const proof = localProof(this.#parameters.finishFunction, owner);
    return { wire, messages, proof, backend: { pid: wire.pid, owner }, cancel };
  }

  #expectNoExcess(role: string | null, excess: Answer | null): void {
    if (role === null || excess === null) return;
    this.#expectSuccess(excess);
    const why = excess.rows[0]?.[0] ?? null;
    if (why !== null) throw excessError(role, why);
  }

  /** A session on another server than the manager's would run tasks that were claimed elsewhere. */
  #expectSameServer(started: string | null | undefined): void {
    const { serverStart, target } = this.#parameters;
    if (serverStart === null || serverStart === started) return;
    throw new PgTaskError(
      "CONNECTION_MOVED",
      `${describeTarget(target)} now leads to another server: expected the one that was started at ${serverStart}, got ${started}`,
    );
  }

  /** On a read-only server or database, tasks wait as on a standby instead of failing. */
  #expectWritable(readOnlySource: string | null): void {
    const { target } = this.#parameters;
    if (!serverWideSources.has(readOnlySource ?? "") || target.sessionAttributes === "primary") return;
    throw readOnlyError(target, "session");
  }

  /** SQL of what a run and a reset need: opening fails instead of a later run. */
  #testSql(role: string | null): string[] {
    const run = { id: "0", args: null, results: null, group: "", timeoutMs: 0, save: false };
    const { resetFunction: reset } = this.#parameters;
    const settingsSql = new SettingsSql(this.#parameters).sql(run);
    // The reset restores the session's statement_timeout.
    return [
      ...(role === null ? [] : [setRoleSql(role)]),
      settingsSql,
      `SELECT ${reset}()`,
      clearSessionTimeoutSql,
      ...resetSql(run),
    ];
  }

  #expectSuccess(answer: Answer): void {
    if (answer.error === null) return;
    const where = describeTarget(this.#parameters.target);
    const { message, code } = answer.error;
    throw new PgTaskError("CONNECTION_REJECTED", `session setup failed on ${where}: ${message} (SQLSTATE ${code})`, {
      sqlState: code,
    });
  }
}
