import type { Client } from "../../../shared/postgres/client.js";
import { ownerSql } from "../../../shared/postgres/backendIdentity.js";
import type { TaskTable } from "../taskTable.js";

/** Rows of one statement, each a transaction of its own. */
const batch = 5000;

/** Below every id. */
const beforeAll = "-9223372036854775808";

/**
 * Puts the rows that wait into the queue; all others are out of it as they are. Rows added meanwhile
 * are in it by the column's default and the triggers.
 *
 * @returns how many.
 */
export async function offerWaiting(client: Client, { qualified }: TaskTable): Promise<number> {
  const { rows: newest } = await client.query<{ id: string | null }>(
    `SELECT max(id)::text AS id FROM ${qualified}`,
  );
  // Producers may be faster than this.
  const end = newest[0]?.id ?? beforeAll;
  let offered = 0;
  for (let last = beforeAll; ;) {
    const { rows } = await client.query<{ last: string | null }>(
      `SELECT max(id)::text AS last FROM (
         SELECT id FROM ${qualified} WHERE id > $1::bigint AND id <= $2::bigint ORDER BY id LIMIT ${batch}) AS b`,
      [last, end],
    );
    const next = rows[0]?.last ?? null;
    if (next === null) return offered;
    const { rowCount } = await client.query(
      `UPDATE ${qualified} SET ready = plan <= now()
       WHERE id > $1::bigint AND id <= $2::bigint AND state::text = 'PLAN' AND ready IS NULL AND owner IS NULL`,
      [last, next],
    );
    offered += rowCount ?? 0;
    last = next;
  }
}

/**
 * Looks after tasks that the extension had taken: those whose server process is there are given it
 * as their owner, so that they count as running until it is gone; all others wait again. Whether the
 * process of a remote task is there cannot be asked here.
 *
 * @returns how many run still, and how many wait again.
 */
export async function settleTaken(
  client: Client,
  { qualified }: TaskTable,
): Promise<{ running: number; waiting: number }> {
  const unowned = "state::text IN ('TAKE', 'WORK') AND owner IS NULL";
  const { rows: taken } = await client.query<{ id: string }>(
    `SELECT id::text AS id FROM ${qualified} WHERE ${unowned}`,
  );
  if (taken.length === 0) return { running: 0, waiting: 0 };
  const ids = taken.map(({ id }) => id);
  // A process that is younger than the run has got the number of one that is gone.
  const { rows: alive } = await client.query<{ id: string; owner: string }>(
    `SELECT t.id::text AS id, coalesce(${ownerSql("a")}, a.pid::text) AS owner
     FROM ${qualified} AS t JOIN pg_stat_activity AS a ON a.pid = t.pid AND a.pid <> pg_backend_pid()
     WHERE t.id = ANY ($1::bigint[]) AND t.remote IS NULL
       AND (a.backend_start IS NULL OR t.start IS NULL OR a.backend_start <= t.start)`,
    [ids],
  );
  await client.query(
    `UPDATE ${qualified} AS t SET owner = a.owner FROM unnest($1::bigint[], $2::text[]) AS a(id, owner)
     WHERE t.id = a.id AND t.id = ANY ($1::bigint[]) AND t.state::text IN ('TAKE', 'WORK') AND t.owner IS NULL`,
    [alive.map(({ id }) => id), alive.map(({ owner }) => owner)],
  );
  const living = new Set(alive.map(({ id }) => id));
  const dead = ids.filter((id) => !living.has(id));
  let waiting = 0;
  for (let from = 0; from < dead.length; from += batch) {
    const { rowCount } = await client.query(
      `UPDATE ${qualified} SET state = 'PLAN', ready = plan <= now(), take = NULL, start = NULL, pid = NULL
       WHERE id = ANY ($1::bigint[]) AND ${unowned}`,
      [dead.slice(from, from + batch)],
    );
    waiting += rowCount ?? 0;
  }
  return { running: living.size, waiting };
}
