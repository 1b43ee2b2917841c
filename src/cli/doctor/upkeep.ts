import type { TaskTable } from "../../manager/schema/taskTable.js";
import { isSessionSql } from "../../shared/postgres/applicationNames.js";
import type { Client } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { ok, warn, type Check } from "../inspection/check.js";

/** SQL condition: there are more dead rows than autovacuum should have left by now. */
const bloated = `dead > 10000 AND dead > live * 0.5`;

export async function checkBloat(client: Client, { qualified }: TaskTable): Promise<Check> {
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

/**
 * A transaction that has been open for longer than this is reported. It keeps VACUUM from removing dead rows in the
 * whole database.
 */
const longOpen = "10 minutes";

export async function checkTransactions(client: Client): Promise<Check> {
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

/**
 * Checks for transactions whose age is hidden. Any role can see that another role has an open transaction, but only
 * members of pg_read_all_stats can see since when.
 */
async function checkHiddenTransactions(client: Client): Promise<Check> {
  const { rows } = await client.query<{ hidden: number; user: string; grantee: string }>(
    `SELECT count(*)::integer AS hidden, current_user AS "user", quote_ident(current_user) AS grantee
     FROM pg_catalog.pg_stat_activity AS a
     WHERE datname = current_database() AND backend_type IS NULL AND usesysid IS NOT NULL
       AND EXISTS (SELECT FROM pg_catalog.pg_locks AS l WHERE l.pid = a.pid AND l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock')`,
  );
  const { hidden = 0, user = "", grantee = "" } = rows[0] ?? {};
  if (hidden === 0) return ok("transactions", `none open for more than ${longOpen}`);
  return warn(
    "transactions",
    `${hidden} open of other roles, since when is hidden from ${user}; no visible one open for more than ${longOpen}`,
    `GRANT pg_read_all_stats TO ${grantee}`,
  );
}
