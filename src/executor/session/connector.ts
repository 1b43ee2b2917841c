import { describeTarget } from "../../shared/postgres/target/describeTarget.js";
import { PgTaskError } from "../../shared/errors.js";
import { ownerSql } from "../../shared/postgres/backendIdentity.js";
import type { BackendIdentity, ExecutorParameters } from "../../shared/ipc/messages.js";
import {
  expectServer,
  startupWith,
  whoAnswersSql,
  type Startup,
  type StartupSettings,
} from "../../shared/postgres/startupOptions.js";
import { openProtocolConnection } from "../../shared/postgres/openProtocolConnection.js";
import { maxOutputBytes } from "../output/outputFormatter.js";
import {
  PipelinedMessages,
  standingSql,
  toFunctions,
  toStanding,
} from "../run/pipelinedMessages.js";
import {
  applicationName,
  ownTimeoutPutAwaySql,
  resetSql,
  SettingsText,
} from "../run/sessionSql.js";
import type { Answer, ProtocolConnection } from "../../shared/postgres/protocol/connection.js";

/** A connection that can run tasks. */
export interface OpenConnection {
  readonly wire: ProtocolConnection;
  readonly messages: PipelinedMessages;
  readonly backend: BackendIdentity;
}

/** The server ends a session whose client is gone within about ten seconds. */
const settings: StartupSettings = {
  client_encoding: "UTF8",
  tcp_keepalives_idle: 5,
  tcp_keepalives_interval: 2,
  tcp_keepalives_count: 3,
  tcp_user_timeout: 10_000,
};

/** Known from PostgreSQL 14 on, and there not on every platform. */
const laterSettings: StartupSettings = {
  ...settings,
  client_connection_check_interval: 200,
  idle_session_timeout: 0,
};

/** SQLSTATEs with which a server refuses a setting: it does not know it, or not that value of it. */
const settingRefused = new Set(["42704", "22023"]);

/** Messages of any size that are no row are kept up to this, in bytes. */
const leastMessageLimit = 1 << 20;
/** Lengths and count of the most columns a row may have. */
const rowOverhead = 8192;

/** @returns the largest message kept whole, in bytes, where output may have `outputLimit` */
export function messageLimit(outputLimit: number): number {
  return Math.max(Math.min(outputLimit, maxOutputBytes), leastMessageLimit) + rowOverhead;
}

/** Of what pg_stat_activity is made of: a new process would take longer to plan the view than for all the rest. */
const identitySql =
  `SELECT pg_catalog.pg_backend_pid(), ${ownerSql("activity")}, session_user, ` +
  "CASE WHEN current_user OPERATOR(pg_catalog.<>) session_user THEN current_user END " +
  "FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) AS activity";

/** Another role may not see the process of the one that has logged in. */
const hiddenBy = (user: string | null | undefined, role: string): string =>
  `: the setting "role" of ${user} is ${role}, which may not see it; ALTER ROLE … RESET role, or GRANT pg_read_all_stats TO ${role}`;

/** A connection of which nothing is known yet but what it was asked for. */
interface LoggedIn {
  readonly wire: ProtocolConnection;
  readonly startup: Startup;
}

/** Opens connections to one target, and remembers what its server knows. */
export class Connector {
  readonly #parameters: ExecutorParameters;
  #settings = laterSettings;

  constructor(parameters: ExecutorParameters) {
    this.#parameters = parameters;
  }

  /**
   * @param group it is set from the beginning, so that it need not be for its tasks.
   * @throws PgTaskError CONNECTION_FAILED, CONNECTION_REJECTED or CONNECTION_POOLED as `connect`,
   * CONNECTION_REJECTED when the server does not let a session set itself up, CONNECTION_LOST
   */
  async open(group: string): Promise<OpenConnection> {
    const loggedIn = await this.#connect(group);
    try {
      return await this.#introduce(loggedIn);
    } catch (error) {
      await loggedIn.wire.close();
      throw error;
    }
  }

  async #connect(group: string): Promise<LoggedIn> {
    const { target, schema, table } = this.#parameters;
    const options = {
      applicationName: applicationName(this.#parameters),
      messageLimit: () => messageLimit(this.#parameters.outputLimit),
    };
    const own = { "pg_task.schema": schema, "pg_task.table": table, "pg_task.group": group };
    // Other attempts may go on beside this one and change it.
    const tried = this.#settings;
    const withSettings = async (given: StartupSettings): Promise<LoggedIn> => {
      const startup = startupWith({ ...own, ...given });
      return { startup, wire: await openProtocolConnection(target, { ...options, startup }) };
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

  /** All at once: each way there and back counts where many sessions are opened. */
  async #introduce({ wire, startup }: LoggedIn): Promise<OpenConnection> {
    const [ownTimeout, who, identity, stands, ...rehearsal] = await Promise.all([
      wire.ask(ownTimeoutPutAwaySql),
      wire.ask(whoAnswersSql),
      wire.ask(identitySql),
      wire.ask(standingSql(this.#parameters)),
      ...this.#rehearsal().map((text) => wire.ask(text)),
    ]);
    this.#expectSuccess(who);
    this.#expectServer(wire, who, startup);
    for (const answer of [ownTimeout, identity, stands, ...rehearsal]) this.#expectSuccess(answer);
    const [pid, owner, user, role = null] = identity.rows[0] ?? [];
    if (typeof owner !== "string") {
      throw new PgTaskError(
        "CONNECTION_REJECTED",
        `expected to find backend ${pid} of ${describeTarget(this.#parameters.target)} with its start ` +
          `in pg_stat_activity, found none${role === null ? "" : hiddenBy(user, role)}`,
      );
    }
    const standing = stands.rows[0] ?? [];
    const session = {
      owner,
      standing: toStanding(standing),
      functions: toFunctions(standing),
      ownTimeoutMs: Number(ownTimeout.rows[0]?.[0] ?? 0),
    };
    const messages = new PipelinedMessages(this.#parameters, session);
    return { wire, messages, backend: { pid: wire.pid, owner } };
  }

  #expectServer({ pid }: ProtocolConnection, who: Answer, startup: Startup): void {
    const [answered, mark] = who.rows[0] ?? [];
    // Some poolers announce none.
    const announced = pid === 0 ? null : pid;
    const answer = { pid: Number(answered), mark };
    expectServer(this.#parameters.target, announced, answer, startup);
  }

  /** What every run needs, so that no run fails for it; the session is as new after it. */
  #rehearsal(): string[] {
    const trial = { id: "0", group: "", timeoutMs: 0, save: false };
    const { reset } = this.#parameters;
    const told = new SettingsText(this.#parameters).sql(trial);
    return [told, `SELECT ${reset}()`, ...resetSql(trial)];
  }

  #expectSuccess(answer: Answer): void {
    if (answer.error === null) return;
    const where = describeTarget(this.#parameters.target);
    const { message, code } = answer.error;
    throw new PgTaskError(
      "CONNECTION_REJECTED",
      `the server ${where} did not let a session set itself up: ${message} (SQLSTATE ${code})`,
      { sqlState: code },
    );
  }
}
