import { PgTaskError } from "../../shared/errors.js";
import { ownerSql, serverStartSql, type BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import { literal } from "../../shared/postgres/quoting.js";
import {
  connectionCheckSettings,
  sessionClientSettings,
  type StartupSettings,
} from "../../shared/postgres/startupOptions.js";
import type { Answer, ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import { LoginRefused } from "../../shared/postgres/auth/login.js";
import { ConnectionProblem } from "../../shared/postgres/errors.js";
import type { SessionAttributes } from "../../shared/postgres/target/target.js";
import type { RemoteTarget } from "./resolveRemoteTarget.js";

const settings: StartupSettings = { idle_session_timeout: 0, ...connectionCheckSettings, ...sessionClientSettings };

/** Applies these settings, except those that the server does not know or the connection string sets. */
const settingsSql = `SELECT pg_catalog.set_config(s.name, v.value, false)
FROM (VALUES ${Object.entries(settings)
  .map(([name, value]) => `('${name}', '${value}')`)
  .join(", ")}) AS v(name, value)
JOIN pg_catalog.pg_settings AS s ON s.name OPERATOR(pg_catalog.=) v.name::pg_catalog.text
WHERE s.source OPERATOR(pg_catalog.<>) 'client'::pg_catalog.text`;

const roleSettingsSql = `SELECT pg_catalog.string_agg(s::pg_catalog.text, ' ' ORDER BY s.setdatabase, s.setrole)
FROM pg_catalog.pg_db_role_setting AS s
WHERE s.setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY[0::pg_catalog.oid, (SELECT d.oid
    FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())])
  AND s.setrole OPERATOR(pg_catalog.=) ANY (ARRAY[0::pg_catalog.oid, (SELECT r.oid
    FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) session_user)])`;

const stateSql =
  "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), " +
  `pg_catalog.current_setting('transaction_read_only'), (SELECT ${ownerSql("activity")} ` +
  "FROM pg_catalog.pg_stat_activity AS activity " +
  "WHERE activity.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()), " +
  `(${roleSettingsSql}), ${serverStartSql}, pg_catalog.current_setting('server_version_num')`;

export interface RemoteSessionState extends BackendIdentity {
  readonly roleSettings: string | null;
  readonly serverStartedAt: string;
  /** Why it can write no proofs. Null if it can. */
  readonly obstacle: string | null;
}

/** Another server may have the wanted attributes. */
export class SessionMismatch extends ConnectionProblem {}

/**
 * Sets a session up. Returns its properties: behind a pooler, its backend is not the one in BackendKeyData.
 *
 * @throws SessionMismatch, LoginRefused, ConnectionProblem, PgTaskError CONNECTION_LOST
 */
export async function setUpSession(
  wire: ProtocolConnection,
  { startup }: RemoteTarget,
  wanted: SessionAttributes,
): Promise<RemoteSessionState> {
  // Checked, but not used: text is always sent as UTF-8.
  const encoding = startup["client_encoding"];
  const [state, , known] = await Promise.all([
    wire.query(stateSql).then(expectSuccess),
    wire.query(settingsSql).then(expectSuccess),
    encoding === undefined
      ? null
      : wire.query(`SELECT pg_catalog.pg_char_to_encoding(${literal(encoding)})`).then(expectSuccess),
  ]);
  if (known?.rows[0]?.[0] === "-1") {
    throw new ConnectionProblem(`invalid value for parameter "client_encoding": "${encoding}"`);
  }
  const [pid, standby, readOnly, owner, roleSettings = null, started, version] = state.rows[0] ?? [];
  const problem = mismatches[wanted]({ standby: standby === "t", readOnly: readOnly === "on" });
  if (problem !== null) throw new SessionMismatch(problem);
  const obstacle = proofObstacle({
    version: Number(version),
    standby: standby === "t",
    readOnly: readOnly === "on",
    pooled: Number(pid) !== wire.pid,
  });
  return { pid: Number(pid), owner: owner ?? "", roleSettings, serverStartedAt: started ?? "", obstacle };
}

function proofObstacle(is: { version: number; standby: boolean; readOnly: boolean; pooled: boolean }): string | null {
  if (is.version < 120_000) return "the server is older than PostgreSQL 12";
  if (is.pooled) return "a pooler is in between";
  if (is.standby) return "the server is a standby";
  return is.readOnly ? "the session is read-only" : null;
}

/** Checks that a kept session is still like a new one, and sets it up. With `save`, only its backend counts. */
export async function prepareKeptSession(
  wire: ProtocolConnection,
  target: RemoteTarget,
  { wanted, known, saved }: { wanted: SessionAttributes; known: RemoteSessionState; saved: boolean },
): Promise<boolean> {
  try {
    if (saved) {
      const { error, rows } = await wire.query("SELECT pg_catalog.pg_backend_pid()");
      return error !== null || rows[0]?.[0] === String(known.pid);
    }
    const { owner, roleSettings, obstacle } = await setUpSession(wire, target, wanted);
    return owner === known.owner && roleSettings === known.roleSettings && obstacle === known.obstacle;
  } catch (error) {
    const expected = [ConnectionProblem, LoginRefused, PgTaskError];
    if (expected.some((kind) => error instanceof kind)) return false;
    throw error;
  }
}

function expectSuccess(answer: Answer): Answer {
  if (answer.error !== null) throw new LoginRefused(answer.error);
  return answer;
}

/** Why a session lacks the attribute, or null if it has it. */
const mismatches: Readonly<Record<SessionAttributes, (is: { standby: boolean; readOnly: boolean }) => string | null>> =
  {
    any: () => null,
    "read-write": ({ readOnly }) => (readOnly ? "session is read-only" : null),
    "read-only": ({ readOnly }) => (readOnly ? null : "session is not read-only"),
    primary: ({ standby }) => (standby ? "server is in hot standby mode" : null),
    standby: ({ standby }) => (standby ? null : "server is not in hot standby mode"),
    "prefer-standby": ({ standby }) => (standby ? null : "server is not in hot standby mode"),
  };
