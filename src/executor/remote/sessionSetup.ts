import { PgTaskError } from "../../shared/errors.js";
import { ownerSql } from "../../shared/postgres/backendIdentity.js";
import type { BackendIdentity } from "../../shared/ipc/messages.js";
import { literal } from "../../shared/postgres/quoting.js";
import type { Answer, ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import { startedSql } from "./managerServerLimit.js";
import { LoginRefused } from "../../shared/postgres/auth/login.js";
import { ConnectionProblem } from "../../shared/postgres/errors.js";
import type { RemoteTarget, SessionAttributes } from "./remoteTarget.js";

/** The server ends a session whose client is gone within about ten seconds, where it can see that. */
const settings: Readonly<Record<string, string>> = {
  client_connection_check_interval: "200",
  idle_session_timeout: "0",
  tcp_keepalives_idle: "5",
  tcp_keepalives_interval: "2",
  tcp_keepalives_count: "3",
  tcp_user_timeout: "10000",
};

/** What the server knows of these, and the connection string leaves to us. */
const settingsSql = `SELECT pg_catalog.set_config(s.name, v.value, false)
FROM (VALUES ${Object.entries(settings)
  .map(([name, value]) => `('${name}', '${value}')`)
  .join(", ")}) AS v(name, value)
JOIN pg_catalog.pg_settings AS s ON s.name OPERATOR(pg_catalog.=) v.name::pg_catalog.text
WHERE s.source OPERATOR(pg_catalog.<>) 'client'::pg_catalog.text`;

/** What role and database set for their sessions, as one text. */
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
  `(${roleSettingsSql}), ${startedSql}`;

/** What is known of a session from its introduction. */
export interface Introduction extends BackendIdentity {
  /** What role and database set for their sessions. */
  readonly roleSettings: string | null;
  /** When the server was started, by its own account. */
  readonly started: string;
}

/** A session that is not of the wanted kind: another server may have one. */
export class WrongSession extends ConnectionProblem {}

/**
 * Looks whether a session is what the connection string asks for, and sets it up.
 *
 * @returns the server process, which behind a pooler is another than the key data's
 * @throws WrongSession, Refusal, ConnectionProblem, CONNECTION_LOST
 */
export async function introduce(
  wire: ProtocolConnection,
  { startup }: RemoteTarget,
  wanted: SessionAttributes,
): Promise<Introduction> {
  const encoding = startup["client_encoding"];
  const [state, , known] = await Promise.all([
    wire.ask(stateSql).then(expectSuccess),
    wire.ask(settingsSql).then(expectSuccess),
    encoding === undefined ? null : wire.ask(encodingSql(encoding)).then(expectSuccess),
  ]);
  if (known?.rows[0]?.[0] === "-1") {
    throw new ConnectionProblem(`invalid value for parameter "client_encoding": "${encoding}"`);
  }
  const [pid, standby, readOnly, owner, roleSettings = null, started] = state.rows[0] ?? [];
  const problem = mismatches[wanted]({ standby: standby === "t", readOnly: readOnly === "on" });
  if (problem !== null) throw new WrongSession(problem);
  return { pid: Number(pid), owner: owner ?? "", roleSettings, started: started ?? "" };
}

/**
 * Looks whether a session that was introduced and kept is as a new one would be, and sets it up again.
 *
 * @param saved whether it was kept with its state: then it is only looked whether it is there.
 */
export async function isStill(
  wire: ProtocolConnection,
  target: RemoteTarget,
  { wanted, known, saved }: { wanted: SessionAttributes; known: Introduction; saved: boolean },
): Promise<boolean> {
  try {
    if (saved) {
      const { error, rows } = await wire.ask("SELECT pg_catalog.pg_backend_pid()");
      return error !== null || rows[0]?.[0] === String(known.pid);
    }
    const { owner, roleSettings } = await introduce(wire, target, wanted);
    return owner === known.owner && roleSettings === known.roleSettings;
  } catch (error) {
    const expected = [ConnectionProblem, LoginRefused, PgTaskError];
    if (expected.some((kind) => error instanceof kind)) return false;
    throw error;
  }
}

/** Text goes over the wire as UTF-8 in any case: only whether there is such an encoding matters. */
function encodingSql(encoding: string): string {
  return `SELECT pg_catalog.pg_char_to_encoding(${literal(encoding)})`;
}

function expectSuccess(answer: Answer): Answer {
  if (answer.error !== null) throw new LoginRefused(answer.error);
  return answer;
}

/** Why a session is not of the wanted kind. */
const mismatches: Readonly<
  Record<SessionAttributes, (is: { standby: boolean; readOnly: boolean }) => string | null>
> = {
  any: () => null,
  "read-write": ({ readOnly }) => (readOnly ? "session is read-only" : null),
  "read-only": ({ readOnly }) => (readOnly ? null : "session is not read-only"),
  primary: ({ standby }) => (standby ? "server is in hot standby mode" : null),
  standby: ({ standby }) => (standby ? null : "server is not in hot standby mode"),
  "prefer-standby": ({ standby }) => (standby ? null : "server is not in hot standby mode"),
};
