import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { firstLine } from "../../shared/firstLine.js";
import { errorMessage } from "../../shared/errors.js";
import { ConnectionProblem, ConnectionStringError } from "../../shared/postgres/errors.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { timeoutSignal } from "../../shared/timeoutSignal.js";
import { connectRemote } from "../../executor/remote/connectRemote.js";
import { ConnectionPermits, ManagerServer } from "../../executor/remote/managerServer.js";
import { noSchema, readLedgerState, type LedgerState } from "../../executor/remote/remoteLedger.sql.js";
import { shownServer } from "../../executor/remote/remoteSession.js";
import { resolveRemote } from "../../executor/remote/resolveRemoteTarget.js";
import { hasUsers } from "../../tasks/hasUsers.js";
import { ok, warn, type Finding } from "../inspection.js";
import type { OpenTable } from "../support/openTable.js";

const maxRemotes = 10;
const answerMs = 5_000;
const answerLimit = 1 << 16;

interface Remote {
  /** Contains secrets. */
  readonly remote: string;
  readonly role: string | null;
}

/** Asks the servers of waiting remote tasks whether these tasks can run exactly once. No finding if there are none. */
export async function checkRemotes({ client, table, entry: { target } }: OpenTable): Promise<Finding[]> {
  const { rows } = await client.query<Remote & { isSuperuser: boolean }>(
    `SELECT DISTINCT w.remote, w.role, (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = session_user) AS "isSuperuser"
     FROM (SELECT t.remote::text AS remote, to_jsonb(t) ->> 'role' AS role FROM ${table.qualified} AS t
       WHERE t.ready IS NOT NULL AND t.remote IS NOT NULL LIMIT 10000) AS w ORDER BY 1, 2 LIMIT ${maxRemotes + 1}`,
  );
  if (rows.length === 0) return [];
  const isTrusted = rows[0]?.isSuperuser === true && !(await hasUsers(client, table));
  const findings = await Promise.all(rows.slice(0, maxRemotes).map((each) => check(each, target, isTrusted)));
  const warnings = findings.flatMap((each) => each ?? []);
  if (warnings.length > 0) return warnings;
  const more = rows.length > maxRemotes ? `the first ${maxRemotes} of the` : "the";
  return [
    ok("remote", `${more} servers of waiting remote tasks have a ledger, or get one: tasks run there exactly once`),
  ];
}

async function check(
  { remote, role }: Remote,
  target: ConnectionTarget,
  isSuperuser: boolean,
): Promise<Finding | null> {
  const managerTarget = { ...target, user: role ?? target.user };
  let server = "a server";
  try {
    const found = await resolveRemote(remote, { managerTarget, isSuperuser, env: process.env, warn: () => {} });
    server = shownServer(remote, found);
    const state = await readLedger(found);
    if (state.kind !== "impossible") return null;
    const remedy =
      state.reason === noSchema
        ? `if its tasks must not run twice, as an administrator there: CREATE SCHEMA AUTHORIZATION ${identifier(found.user)}`
        : "if its tasks must not run twice, let the column remote lead to a primary with PostgreSQL 12 or later, without a pooler";
    return warn("remote", `remote tasks at ${server} run at least once: ${state.reason}`, remedy);
  } catch (error) {
    if (!(error instanceof ConnectionProblem || error instanceof ConnectionStringError)) throw error;
    const why = server.includes("*") ? "no connection" : firstLine(errorMessage(error));
    return warn(
      "remote",
      `remote tasks at ${server}: ${why}`,
      "correct the column remote of these tasks, or the server",
    );
  }
}

async function readLedger(target: Parameters<typeof connectRemote>[0]): Promise<LedgerState> {
  // It recognizes no server as the manager's, so nothing asks for a permit.
  const managerServer = new ManagerServer(new ConnectionPermits(() => {}), { addresses: [], port: 0, startedAt: null });
  const signal = timeoutSignal(answerMs);
  const options = { applicationName: "pg_task doctor", messageLimit: answerLimit, managerServer, signal };
  try {
    const { wire, known } = await connectRemote(target, options);
    const state = await readLedgerState(wire, known.obstacle);
    await wire.close();
    return state;
  } catch (error) {
    throw signal.aborted ? new ConnectionProblem(`no answer within ${answerMs / 1000} s`) : error;
  }
}
