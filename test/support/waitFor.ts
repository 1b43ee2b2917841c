import { setTimeout as pause } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";

const pollMs = 20;

/** Waits until the query returns a row, and returns the first one. */
export async function waitForRow<Row extends object>(
  client: Client,
  sql: string,
  parameters: readonly unknown[] = [],
): Promise<Row> {
  for (;;) {
    const { rows } = await client.query<Row>(sql, [...parameters]);
    const [row] = rows;
    if (row !== undefined) return row;
    await pause(pollMs);
  }
}

/** Inserts a task and returns its id. */
export async function insertTask(client: Client, input: string, group = "group"): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group") VALUES ($1, $2) RETURNING id`,
    [input, group],
  );
  return rows[0]?.id ?? "";
}

interface TaskRow {
  readonly owner: string | null;
  readonly pid: number | null;
  readonly output: string | null;
  readonly crash: number;
}

/** Waits until the task is in this state. Returns its row. If it should succeed but fails, its error is thrown. */
export async function waitForState(client: Client, id: string, state: string): Promise<TaskRow> {
  const row = await waitForRow<TaskRow & { state: string; error: string | null }>(
    client,
    "SELECT * FROM task WHERE id = $1 AND (state = $2::text::state OR $2 = 'DONE' AND state IN ('FAIL', 'GONE'))",
    [id, state],
  );
  if (row.state !== state) throw new Error(`task ${id} is ${row.state}: ${row.error}`);
  return row;
}

/**
 * Waits until a task's run sleeps or waits for a lock, and returns the task's row. State `WORK` would not be enough: a
 * task has this state as soon as it is claimed, before its input is sent.
 */
export async function waitForRun(client: Client, id: string, table = "task"): Promise<TaskRow> {
  return await waitForRow(
    client,
    `SELECT task.* FROM ${table} AS task JOIN pg_stat_activity AS activity ON activity.pid = task.pid
     WHERE task.id = $1 AND task.state = 'WORK' AND activity.state = 'active'
       AND activity.wait_event_type IN ('Lock', 'Timeout')`,
    [id],
  );
}
