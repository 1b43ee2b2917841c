import { mayRead, queryOne } from "../../tasks/queryOne.js";
import {
  readTableState,
  type Finding,
  checkZone,
  type ConfiguredParameters,
  checkSchedules,
  checkHome,
  checkWriters,
  fail,
  ok,
  warn,
} from "../inspection.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { readHiddenRows } from "../../tasks/queries/tableFacts.js";
import { readTableLock } from "../../tasks/queries/clusterProcesses.js";
import {
  checkManager,
  checkOrphans,
  checkBacklog,
  checkPauses,
  checkResults,
  checkOrder,
  checkWebhooks,
} from "./operation.js";
import { checkColumns, checkFeatures, checkIndexes, checkMigration, checkTriggers, checkViews } from "./structure.js";
import { checkUsers } from "./users.js";
import { ownerRemedy } from "../../manager/schema/privilegeRemedy.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { isSessionSql } from "../../shared/postgres/applicationNames.js";

/** The client is connected as the user of the table's entry. */
export async function checkTable(
  client: Client,
  table: TaskTable,
  configured: ConfiguredParameters,
): Promise<Finding[]> {
  const state = await readTableState(client, table);
  const version = checkMigration(table, state);
  // Until a start has replaced these functions, the other checks would call some that do not exist.
  if (state.isElsewhere) return [version];
  // The server would refuse the other checks.
  if ((await mayRead(client, table.qualified)) !== true) return [version, await checkPrivileges(client, table)];
  const whole = version.level === "ok" ? [checkColumns(table, state, configured.parameters)] : [];
  // If columns are missing, the other checks are skipped, because they read these columns.
  if (whole.some(({ level }) => level === "fail")) return [version, ...whole];
  return [
    version,
    ...whole,
    ...(version.level === "ok" ? [await checkFeatures(client, table)] : []),
    await checkPrivileges(client, table),
    await checkWriters(client, table),
    ...(await checkUsers(client, table)),
    await checkRowSecurity(client, table),
    await checkTriggers(client, table),
    await checkIndexes(client, table),
    await checkViews(client, table),
    await checkBloat(client, table),
    await checkTransactions(client),
    ...(await checkRoleSettings(client)),
    ...(await checkZone(client, table, configured)),
    await checkHome(client, table, configured),
    await checkManager(client, table),
    await checkBacklog(client, table),
    ...(await checkPauses(client, table)),
    ...(await checkWebhooks(client, table)),
    ...(await checkSchedules(client, table)),
    ...(version.level === "ok" && (await mayRead(client, table.qualifiedDependencies)) === true
      ? [await checkOrder(client, table)]
      : []),
    await checkResults(client, table),
    await checkOrphans(client, table),
  ];
}

async function checkPrivileges(client: Client, table: TaskTable): Promise<Finding> {
  const { qualified } = table;
  const { lacking, owns, owner, isOwnerSuperuser, sequence, user } = await queryOne<{
    lacking: string[];
    owns: boolean;
    owner: string;
    isOwnerSuperuser: boolean;
    sequence: string | null;
    user: string;
  }>(
    client,
    `SELECT ARRAY(SELECT r FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r
         WHERE NOT has_table_privilege($1, r)) AS lacking,
       pg_has_role(c.relowner, 'USAGE') AS owns, current_user AS "user", o.rolname AS owner,
       o.rolsuper AS "isOwnerSuperuser",
       (SELECT s FROM pg_get_serial_sequence($1, 'id') AS s WHERE NOT has_sequence_privilege(s, 'USAGE')) AS sequence
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner WHERE c.oid = $1::regclass`,
    [qualified],
  );
  const become = ownerRemedy(qualified, user, { owner, isOwnerSuperuser });
  if (!owns && (await isServed(client, table))) {
    return ok("rights", `${user} only looks or adds: the pg-task of ${qualified} has the privileges of ${owner}`);
  }
  if (lacking.length > 0) {
    return fail(
      "rights",
      `${user} lacks ${lacking.join(", ")} on ${qualified}${owns ? "" : `, which ${owner} owns`}`,
      owns ? `GRANT ${lacking.join(", ")} ON ${qualified} TO ${identifier(user)}` : become,
    );
  }
  if (sequence !== null) {
    return fail(
      "rights",
      `${user} lacks USAGE on ${sequence}: tasks cannot repeat`,
      `GRANT USAGE ON SEQUENCE ${sequence} TO ${user}`,
    );
  }
  if (!owns) {
    return warn(
      "rights",
      `${user} does not own ${qualified}, ${owner} does: changed defaults and migrations cannot be applied`,
      become,
    );
  }
  return ok("rights", `${user} owns ${qualified}`);
}

async function isServed(client: Client, table: TaskTable): Promise<boolean> {
  const { manager, foreignHolder } = await readTableLock(client, table);
  return manager !== null && foreignHolder === null;
}

/** The manager sets row_security = off, so that the server raises an error instead of silently hiding rows. */
async function checkRowSecurity(client: Client, table: TaskTable): Promise<Finding> {
  const hidden = await readHiddenRows(client, table);
  if (hidden !== null && (await isServed(client, table))) return ok("row security", hidden);
  if (hidden === null) return ok("row security", "does not hide tasks from the entry's user");
  return fail(
    "row security",
    "hides tasks from the entry's user, so the manager does not start",
    `make the entry's user the table's owner without FORCE ROW LEVEL SECURITY, or ALTER ROLE … BYPASSRLS`,
  );
}

const isNot =
  (harmless: string) =>
  (value: string): boolean =>
    value !== harmless;

const harmfulSettings = [
  {
    name: "session_replication_role",
    isHarmful: isNot("origin"),
    make: fail,
    why: "triggers do not fire for this role",
  },
  {
    name: "default_transaction_read_only",
    isHarmful: (value: string) => value === "on",
    make: warn,
    why: "tasks may not write; if it is set for the database or the server, they wait",
  },
  { name: "statement_timeout", isHarmful: isNot("0"), make: warn, why: "it cancels tasks that take longer" },
  {
    name: "transaction_timeout",
    isHarmful: isNot("0"),
    make: warn,
    why: "it ends the sessions of tasks that take longer",
  },
  {
    name: "idle_session_timeout",
    isHarmful: isNot("0"),
    make: warn,
    why: "it ends sessions that wait for their next task",
  },
];

async function checkRoleSettings(client: Client): Promise<Finding[]> {
  // The command's own connection overrides some of these settings. Therefore, the query reads the values that are set
  // for the role and the database.
  const { rows } = await client.query<{ name: string; value: string; place: string | null }>(
    `SELECT s.name, place, coalesce(made.value,
         CASE WHEN s.source IN ('client', 'session') THEN s.boot_val ELSE current_setting(s.name) END) AS value
     FROM pg_catalog.pg_settings AS s LEFT JOIN LATERAL (
       SELECT split_part(c, '=', 2) AS value, CASE WHEN d.setrole = 0 AND d.setdatabase = 0 THEN 'ROLE ALL'
           WHEN d.setrole = 0 THEN format('DATABASE %I', current_database())
           WHEN d.setdatabase = 0 THEN format('ROLE %I', current_user)
           ELSE format('ROLE %I IN DATABASE %I', current_user, current_database()) END AS place
       FROM pg_catalog.pg_db_role_setting AS d, unnest(d.setconfig) AS c
       WHERE d.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
         AND d.setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user))
         AND split_part(c, '=', 1) = s.name
       ORDER BY d.setrole <> 0 DESC, d.setdatabase <> 0 DESC LIMIT 1
     ) AS made ON true WHERE s.name = ANY ($1::text[])`,
    [harmfulSettings.map(({ name }) => name)],
  );
  const made = new Map(rows.map((row) => [row.name, row]));
  const found = harmfulSettings.flatMap(({ name, isHarmful, make, why }) => {
    const { value, place = null } = made.get(name) ?? {};
    if (value === undefined || !isHarmful(value)) return [];
    const remedy =
      place === null
        ? `set in the server's configuration: override it with ALTER ROLE … SET ${name}`
        : `ALTER ${place} RESET ${name}`;
    return [make("role settings", `${name} is ${value}: ${why}`, remedy)];
  });
  return found.length > 0 ? found : [ok("role settings", "no harmful settings for the entry's user")];
}

const bloated = `dead > 10000 AND dead > live * 0.5`;

async function checkBloat(client: Client, { qualified }: TaskTable): Promise<Finding> {
  const { rows } = await client.query<{
    live: string;
    dead: string;
    bloated: boolean;
    vacuumed: string | null;
    off: boolean;
  }>(
    `SELECT live, dead, ${bloated} AS bloated, vacuumed::text AS vacuumed, off FROM (
       SELECT sum(s.n_live_tup) AS live, sum(s.n_dead_tup) AS dead, max(greatest(s.last_vacuum, s.last_autovacuum)) AS vacuumed,
         bool_or('autovacuum_enabled=false' = ANY (c.reloptions) OR 'autovacuum_enabled=off' = ANY (c.reloptions)) AS off
       FROM pg_catalog.pg_stat_all_tables AS s JOIN pg_catalog.pg_class AS c ON c.oid = s.relid
       WHERE s.relid = $1::regclass OR s.relid IN (SELECT relid FROM pg_catalog.pg_partition_tree($1::regclass))
     ) AS t`,
    [qualified],
  );
  const [row] = rows;
  if (row === undefined) return ok("bloat", "no statistics yet");
  const text = `${row.dead} dead and ${row.live} live rows, last vacuumed ${row.vacuumed ?? "never"}`;
  if (row.off) {
    return warn(
      "bloat",
      `autovacuum is disabled for the table; ${text}`,
      `ALTER TABLE ${qualified} RESET (autovacuum_enabled)`,
    );
  }
  if (row.bloated) return warn("bloat", text, `VACUUM ${qualified}; see below for what holds it back`);
  return ok("bloat", text);
}

/** Such a transaction keeps VACUUM from removing dead rows in the whole database. */
const longOpen = "10 minutes";

async function checkTransactions(client: Client): Promise<Finding> {
  const { rows } = await client.query<{ text: string; remedy: string }>(
    `SELECT format('server process %s (%s, %s) has had a transaction open since %s', pid, usename, application_name, xact_start) AS text,
       CASE WHEN ${isSessionSql("application_name")} THEN 'it runs a task: pg-task list --state WORK tells which, pg-task stop ends it'
         ELSE format('commit there, or SELECT pg_terminate_backend(%s)', pid) END AS remedy
     FROM pg_catalog.pg_stat_activity
     WHERE datname = current_database() AND backend_xmin IS NOT NULL AND backend_type = 'client backend'
       AND xact_start < now() - interval ${literal(longOpen)}
     UNION ALL
     SELECT format('the prepared transaction %L has been open since %s', gid, prepared), format('COMMIT PREPARED or ROLLBACK PREPARED %L', gid)
     FROM pg_catalog.pg_prepared_xacts WHERE database = current_database() AND prepared < now() - interval ${literal(longOpen)}
     UNION ALL
     SELECT format('the replication slot %s holds dead rows back and is not in use', slot_name), format('SELECT pg_drop_replication_slot(%L), if nobody will use it again', slot_name)
     FROM pg_catalog.pg_replication_slots WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
     LIMIT 1`,
  );
  const [row] = rows;
  if (row === undefined) return await checkHiddenTransactions(client);
  return warn("transactions", `${row.text}: VACUUM cannot remove dead rows in the meantime`, row.remedy);
}

/** Any role sees that another has an open transaction, but only members of pg_read_all_stats see since when. */
async function checkHiddenTransactions(client: Client): Promise<Finding> {
  const { hidden, user, grantee } = await queryOne<{ hidden: number; user: string; grantee: string }>(
    client,
    `SELECT count(*)::integer AS hidden, current_user AS "user", quote_ident(current_user) AS grantee
     FROM pg_catalog.pg_stat_activity AS a
     WHERE datname = current_database() AND backend_type IS NULL AND usesysid IS NOT NULL
       AND EXISTS (SELECT FROM pg_catalog.pg_locks AS l WHERE l.pid = a.pid AND l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock')`,
  );
  if (hidden === 0) return ok("transactions", `none open for more than ${longOpen}`);
  return warn(
    "transactions",
    `${hidden} open of other roles, since when is hidden from ${user}; no visible one open for more than ${longOpen}`,
    `GRANT pg_read_all_stats TO ${grantee}`,
  );
}
