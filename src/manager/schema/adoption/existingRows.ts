import type { Client } from "../../../shared/postgres/client.js";
import { ownerSql } from "../../../shared/postgres/backendIdentity.js";
import type { TaskTable } from "../taskTable.js";

const batchRows = 5000;

const minBigint = "-9223372036854775808";

/** Lets existing tasks in state PLAN be claimed. Returns how many there are. */
export async function queueWaitingRows(client: Client, { qualified }: TaskTable): Promise<number> {
  const { rows: newest } = await client.query<{ id: string | null }>(`SELECT max(id)::text AS id FROM ${qualified}`);
  // Producers may insert faster than this loop, and their rows need no treatment.
  const end = newest[0]?.id ?? minBigint;
  let queued = 0;
  for (let last = minBigint; ;) {
    const { rows } = await client.query<{ last: string | null }>(
      `SELECT max(id)::text AS last FROM (
         SELECT id FROM ${qualified} WHERE id > $1::bigint AND id <= $2::bigint ORDER BY id LIMIT ${batchRows}) AS b`,
      [last, end],
    );
    const next = rows[0]?.last ?? null;
    if (next === null) return queued;
    const { rowCount } = await client.query(
      `UPDATE ${qualified} SET ready = plan <= now()
       WHERE id > $1::bigint AND id <= $2::bigint AND state::text = 'PLAN' AND ready IS NULL AND owner IS NULL`,
      [last, next],
    );
    queued += rowCount ?? 0;
    last = next;
  }
}

/**
 * Tasks that the pg_task extension left in TAKE or WORK count as running while their backend lives, which becomes the
 * owner. Others return to PLAN, as do remote ones, whose backends cannot be checked from here.
 */
export async function settleTakenRows(
  client: Client,
  { qualified }: TaskTable,
): Promise<{ running: number; waiting: number }> {
  const unowned = "state::text IN ('TAKE', 'WORK') AND owner IS NULL";
  const { rows: taken } = await client.query<{ id: string }>(
    `SELECT id::text AS id FROM ${qualified} WHERE ${unowned}`,
  );
  if (taken.length === 0) return { running: 0, waiting: 0 };
  const ids = taken.map(({ id }) => id);
  // A backend that started later than the run only has the same pid; it is not the one that ran the task.
  const { rows: alive } = await client.query<{ id: string; owner: string }>(
    `SELECT t.id::text AS id, coalesce(${ownerSql("a")}, a.pid::text) AS owner
     FROM ${qualified} AS t JOIN pg_stat_activity AS a ON a.pid = t.pid AND a.pid <> pg_backend_pid() AND a.datname = current_database()
     WHERE t.id = ANY ($1::bigint[]) AND t.remote IS NULL
       AND (a.backend_start IS NULL OR t.start IS NULL OR a.backend_start <= t.start)`,
    [ids],
  );
  await client.query(
    `UPDATE ${qualified} AS t SET owner = a.owner FROM unnest($1::bigint[], $2::text[]) AS a(id, owner)
     WHERE t.id = a.id AND t.id = ANY ($1::bigint[]) AND t.state::text IN ('TAKE', 'WORK') AND t.owner IS NULL`,
    [alive.map(({ id }) => id), alive.map(({ owner }) => owner)],
  );
  const running = new Set(alive.map(({ id }) => id));
  const dead = ids.filter((id) => !running.has(id));
  let waiting = 0;
  for (let from = 0; from < dead.length; from += batchRows) {
    const { rowCount } = await client.query(
      `UPDATE ${qualified} SET state = 'PLAN', ready = plan <= now(), take = NULL, start = NULL, pid = NULL
       WHERE id = ANY ($1::bigint[]) AND ${unowned}`,
      [dead.slice(from, from + batchRows)],
    );
    waiting += rowCount ?? 0;
  }
  return { running: running.size, waiting };
}
