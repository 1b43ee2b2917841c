import type { TaskTable } from "../manager/table.js";
import type { Client } from "../shared/database.js";
import { maskRemote } from "./maskRemote.js";
import { masked, summaryColumns, type TaskSummary } from "./summary.js";

/** A column's value: an id is text, and so is a number that JavaScript would not keep exactly. */
export type ColumnValue = string | number | boolean | null | object;

/** Every column of a task, a user's own included, in the table's order. */
export type WholeTask = ReadonlyMap<string, ColumnValue>;

/** Null when there is no such task. The password in `remote` is masked. */
export async function readTask(
  client: Client,
  { qualified }: TaskTable,
  id: string,
): Promise<WholeTask | null> {
  const { rows } = await client.query<{ name: string; type: string; value: string | null }>(
    `SELECT c.key AS name, json_typeof(c.value) AS type, c.value #>> '{}' AS value
     FROM (SELECT row_to_json(t) AS task FROM ${qualified} AS t WHERE t.id = $1::bigint LIMIT 1) AS one,
       json_each(one.task) WITH ORDINALITY AS c(key, value, place) ORDER BY c.place`,
    [id],
  );
  if (rows.length === 0) return null;
  return new Map(rows.map(({ name, type, value }) => [name, columnValue(name, type, value)]));
}

function columnValue(name: string, type: string, value: string | null): ColumnValue {
  if (value === null) return null;
  if (name === "id" || name === "parent") return value;
  if (name === "remote") return maskRemote(value);
  if (type === "boolean") return value === "true";
  if (type === "number") return String(Number(value)) === value ? Number(value) : value;
  if (type === "object" || type === "array") return JSON.parse(value);
  return value;
}

/** How far back a chain of parents is followed. */
const longestChain = 100;

/** The task that a task came from, the one that came from, and so on: the nearest first. */
export async function ancestors(
  client: Client,
  { qualified }: TaskTable,
  id: string,
): Promise<TaskSummary[]> {
  const { rows } = await client.query<TaskSummary>(
    `WITH RECURSIVE chain AS (
       SELECT t.parent::bigint AS id, 1 AS place FROM ${qualified} AS t WHERE t.id = $1::bigint
       UNION ALL
       SELECT t.parent::bigint, c.place + 1 FROM chain AS c JOIN ${qualified} AS t ON t.id = c.id
       WHERE c.place < ${longestChain}
     )
     SELECT ${summaryColumns} FROM chain AS c JOIN ${qualified} AS t ON t.id = c.id ORDER BY c.place`,
    [id],
  );
  return rows.map(masked);
}

/** The tasks that came from a task, the newest first. Reads the whole table, which has no index for it. */
export async function children(
  client: Client,
  { qualified }: TaskTable,
  id: string,
  limit: number,
): Promise<TaskSummary[]> {
  const { rows } = await client.query<TaskSummary>(
    `SELECT ${summaryColumns} FROM ${qualified} AS t WHERE t.parent = $1::bigint ORDER BY t.id DESC LIMIT $2`,
    [id, limit],
  );
  return rows.map(masked);
}
