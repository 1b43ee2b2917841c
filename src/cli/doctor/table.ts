import { appliedVersion, latestVersion } from "../../manager/migrations.js";
import type { TaskTable } from "../../manager/table.js";
import type { Client } from "../../shared/database.js";
import { literal } from "../../shared/sqlText.js";
import { readBacklog } from "../../tasks/backlog.js";
import { readPauses } from "../../tasks/pauses.js";
import { readManager } from "../../tasks/processes.js";
import { duration } from "../screen/words.js";
import { fail, ok, warn, type Check } from "./check.js";

/** What is looked at of a table, by its entry's own user. */
export async function checkTable(client: Client, table: TaskTable): Promise<Check[]> {
  return [
    await migration(client, table),
    await rights(client, table),
    await rowSecurity(client, table),
    await triggers(client, table),
    await indexes(client, table),
    await views(client, table),
    await bloat(client, table),
    await oldSnapshots(client),
    ...(await roleSettings(client)),
    await manager(client, table),
    await overdue(client, table),
    await pauses(client, table),
  ];
}

async function migration(client: Client, table: TaskTable): Promise<Check> {
  const version = await appliedVersion(client, table);
  if (version === latestVersion) return ok("table", `${table.qualified} is up to date`);
  const text = `${table.qualified} is at migration ${version}, this pg-task knows ${latestVersion}`;
  if (version > latestVersion) return fail("table", text, "upgrade this pg-task");
  return warn("table", text, "pg-task start brings it up to date");
}

async function rights(client: Client, { qualified }: TaskTable): Promise<Check> {
  const { rows } = await client.query<{
    lacking: string[];
    owns: boolean;
    sequence: string | null;
    user: string;
  }>(
    `SELECT ARRAY(SELECT r FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r
         WHERE NOT has_table_privilege($1, r)) AS lacking,
       pg_has_role(c.relowner, 'USAGE') AS owns, current_user AS "user",
       (SELECT s FROM pg_get_serial_sequence($1, 'id') AS s WHERE NOT has_sequence_privilege(s, 'USAGE')) AS sequence
     FROM pg_catalog.pg_class AS c WHERE c.oid = $1::regclass`,
    [qualified],
  );
  const { lacking = [], owns = false, sequence = null, user = "" } = rows[0] ?? {};
  if (lacking.length > 0) {
    return fail(
      "rights",
      `${user} lacks ${lacking.join(", ")} on ${qualified}`,
      `GRANT ${lacking.join(", ")} ON ${qualified} TO ${user}`,
    );
  }
  if (sequence !== null) {
    return fail(
      "rights",
      `${user} lacks USAGE on ${sequence}: tasks that repeat could not`,
      `GRANT USAGE ON SEQUENCE ${sequence} TO ${user}`,
    );
  }
  if (!owns) {
    return warn(
      "rights",
      `${user} may read and write ${qualified}, and does not own it: changed defaults and later versions cannot be applied`,
      `ALTER TABLE ${qualified} OWNER TO ${user}, or make it a member of the owner`,
    );
  }
  return ok("rights", `${user} owns ${qualified}`);
}

/** The manager asks the server to fail rather than to hide rows from it. */
async function rowSecurity(client: Client, { qualified }: TaskTable): Promise<Check> {
  const { rows } = await client.query<{ active: boolean }>(
    "SELECT row_security_active($1) AS active",
    [qualified],
  );
  if (rows[0]?.active !== true) return ok("row security", "hides no tasks from the entry's user");
  return fail(
    "row security",
    "hides tasks from the entry's user, so the manager does not start",
    `let the table's owner be the entry's user and not FORCE it, or ALTER ROLE … BYPASSRLS`,
  );
}

async function triggers(client: Client, table: TaskTable): Promise<Check> {
  const { qualified, readyInsertTrigger, readyUpdateTrigger, wakeUp } = table;
  const wanted = [readyInsertTrigger, readyUpdateTrigger, wakeUp];
  const { rows } = await client.query<{ name: string; relation: string; state: string | null }>(
    `SELECT w.name, r.relation::regclass::text AS relation, t.tgenabled AS state
     FROM unnest($2::text[]) AS w(name)
     CROSS JOIN (SELECT $1::regclass AS relation
       UNION SELECT p.relid FROM pg_catalog.pg_partition_tree($1::regclass) AS p WHERE p.isleaf) AS r
     JOIN pg_catalog.pg_class AS c ON c.oid = r.relation AND c.relkind IN ('r', 'p')
     LEFT JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = r.relation AND t.tgname = w.name
     WHERE t.tgenabled IS DISTINCT FROM 'O' AND t.tgenabled IS DISTINCT FROM 'A'
       AND NOT (c.relkind = 'p' AND current_setting('server_version_num')::integer < 130000 AND w.name <> $3)`,
    [qualified, wanted, wakeUp],
  );
  const [first] = rows;
  if (first === undefined) return ok("triggers", "all there and on");
  const list = rows.map(
    ({ name, relation, state }) =>
      `${name} on ${relation} ${state === null ? "is missing" : "is off"}`,
  );
  return fail(
    "triggers",
    `${list.join("; ")}: tasks may start late or not at all`,
    first.state === null
      ? "pg-task start makes it when the table is adopted anew; see docs/adoption.md"
      : `ALTER TABLE ${first.relation} ENABLE TRIGGER "${first.name.replaceAll('"', '""')}"`,
  );
}

async function indexes(client: Client, table: TaskTable): Promise<Check> {
  const { rows } = await client.query<{
    what: string;
    index: string | null;
    valid: boolean | null;
  }>(
    `SELECT w.what, i.indexrelid::regclass::text AS index, i.indisvalid AS valid
     FROM (VALUES ('due tasks', 'ready'), ('planned tasks', '(NOT ready)'), ('ids', NULL)) AS w(what, predicate)
     LEFT JOIN LATERAL (
       SELECT i.indexrelid, i.indisvalid FROM pg_catalog.pg_index AS i
       JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
       WHERE i.indrelid = $1::regclass AND CASE WHEN w.predicate IS NULL
         THEN i.indpred IS NULL AND a.attname = 'id' ELSE pg_get_expr(i.indpred, i.indrelid) = w.predicate END
       ORDER BY i.indisvalid DESC LIMIT 1
     ) AS i ON true`,
    [table.qualified],
  );
  const missing = rows.filter(({ index }) => index === null).map(({ what }) => what);
  if (missing.length > 0) {
    return warn(
      "indexes",
      `none for ${missing.join(", ")}: claims read the whole table`,
      `see the statements in docs/table.md, or restart pg-task on a table that it adopts`,
    );
  }
  const invalid = rows.filter(({ valid }) => valid === false).map(({ index }) => index);
  if (invalid.length > 0) {
    return fail(
      "indexes",
      `not valid: ${invalid.join(", ")}`,
      `REINDEX INDEX CONCURRENTLY ${invalid[0]}`,
    );
  }
  return ok("indexes", "all there and valid");
}

async function views(client: Client, table: TaskTable): Promise<Check> {
  const names = [table.statsView, table.errorsView, table.groupsView];
  const { rows } = await client.query<{ name: string }>(
    `SELECT n.name FROM unnest($2::text[]) AS n(name) WHERE NOT EXISTS (
       SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
       WHERE s.nspname = $1 AND c.relname = n.name AND c.relkind = 'v' AND obj_description(c.oid, 'pg_class') LIKE 'pg-task view%')`,
    [table.schema, names],
  );
  if (rows.length === 0) return ok("views", names.join(", "));
  const missing = rows.map(({ name }) => name).join(", ");
  return warn(
    "views",
    `not there: ${missing}`,
    "something else may have the name: rename that, or do without them",
  );
}

/** Dead rows beside live ones that autovacuum should have taken away by now. */
const bloated = `dead > 10000 AND dead > live * 0.5`;

async function bloat(client: Client, { qualified }: TaskTable): Promise<Check> {
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
  if (row === undefined) return ok("bloat", "nothing known yet");
  const text = `${row.dead} dead rows beside ${row.live}, last vacuumed ${row.vacuumed ?? "never"}`;
  if (row.off) {
    return warn(
      "bloat",
      `autovacuum is off for the table; ${text}`,
      `ALTER TABLE ${qualified} RESET (autovacuum_enabled)`,
    );
  }
  if (row.bloated)
    return warn("bloat", text, `VACUUM ${qualified}; look for what holds it back, as below`);
  return ok("bloat", text);
}

/** An open transaction keeps dead rows from being removed, in the whole database, after so long. */
const longOpen = "10 minutes";

async function oldSnapshots(client: Client): Promise<Check> {
  const { rows } = await client.query<{ text: string; remedy: string }>(
    `SELECT format('server process %s (%s, %s) has had a transaction open since %s', pid, usename, application_name, xact_start) AS text,
       format('commit there, or SELECT pg_terminate_backend(%s)', pid) AS remedy
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
  if (row === undefined) return ok("transactions", `none open for more than ${longOpen}`);
  return warn(
    "transactions",
    `${row.text}: what is deleted cannot be reused meanwhile`,
    row.remedy,
  );
}

/** Settings of the entry's role and database that change what its tasks may do. */
const hurtful: readonly {
  readonly name: string;
  readonly hurts: (value: string) => boolean;
  readonly level: "warn" | "fail";
  readonly why: string;
}[] = [
  {
    name: "session_replication_role",
    hurts: (value) => value !== "origin",
    level: "fail",
    why: "triggers do not fire for this role",
  },
  {
    name: "default_transaction_read_only",
    hurts: (value) => value === "on",
    level: "warn",
    why: "tasks may not write",
  },
  {
    name: "statement_timeout",
    hurts: (value) => value !== "0",
    level: "warn",
    why: "it ends tasks as their own timeout would",
  },
  {
    name: "transaction_timeout",
    hurts: (value) => value !== "0",
    level: "warn",
    why: "it ends the sessions of tasks that take longer",
  },
  {
    name: "idle_session_timeout",
    hurts: (value) => value !== "0",
    level: "warn",
    why: "it ends sessions that wait for their next task",
  },
];

async function roleSettings(client: Client): Promise<Check[]> {
  // What the commands' own connection pins is looked up where it comes from.
  const { rows } = await client.query<{ name: string; value: string }>(
    `SELECT s.name, coalesce(
         (SELECT split_part(c, '=', 2) FROM pg_catalog.pg_db_role_setting AS d, unnest(d.setconfig) AS c
          WHERE d.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
            AND d.setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user))
            AND split_part(c, '=', 1) = s.name
          ORDER BY d.setrole <> 0 DESC, d.setdatabase <> 0 DESC LIMIT 1),
         CASE WHEN s.source IN ('client', 'session') THEN s.boot_val ELSE current_setting(s.name) END) AS value
     FROM pg_catalog.pg_settings AS s WHERE s.name = ANY ($1::text[])`,
    [hurtful.map(({ name }) => name)],
  );
  const values = new Map(rows.map(({ name, value }) => [name, value]));
  const found = hurtful.flatMap(({ name, hurts, level, why }) => {
    const value = values.get(name);
    if (value === undefined || !hurts(value)) return [];
    const remedy = `take it away for the entry's user: ALTER ROLE … RESET ${name}`;
    const make = level === "fail" ? fail : warn;
    return [make("role settings", `${name} is ${value}: ${why}`, remedy)];
  });
  return found.length > 0 ? found : [ok("role settings", "none of the entry's user hurts")];
}

async function manager(client: Client, table: TaskTable): Promise<Check> {
  const found = await readManager(client, table);
  if (found !== null) return ok("manager", `server process ${found.pid}`);
  return warn(
    "manager",
    "none works on the table",
    "start pg-task, or look into its log: it says why a manager waits",
  );
}

/** A task that has been due for so long waits for something else than its turn, in ms. */
const overdueMs = 60_000;

async function overdue(client: Client, table: TaskTable): Promise<Check> {
  const { due, oldestDueMs } = await readBacklog(client, table);
  if (due.value === 0) return ok("backlog", "nothing is due");
  const text = `${due.value} due, the oldest for ${oldestDueMs === null ? "ever" : duration(oldestDueMs)}`;
  if (oldestDueMs !== null && oldestDueMs < overdueMs) return ok("backlog", text);
  return warn(
    "backlog",
    text,
    "pg-task explain-plan says of each why; pg-task groups shows where they wait",
  );
}

async function pauses(client: Client, table: TaskTable): Promise<Check> {
  const found = await readPauses(client, table);
  if (found.length === 0) return ok("pauses", "none");
  const list = found.map(({ group }) =>
    group === null ? "the whole table" : JSON.stringify(group),
  );
  return warn("pauses", `paused: ${list.join(", ")}`, "pg-task resume lets them go on");
}
