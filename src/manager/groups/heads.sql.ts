/** Statements that read the heads (first due tasks) of groups, and other due tasks that may become heads. */
import type { Client } from "../../shared/postgres/client.js";
import type { DueTask } from "../model/tasks.js";
import {
  barredColumns,
  dueTasks,
  gapMs,
  groupHeads,
  isBarred,
  isLate,
  isTableBarred,
  keyParameter,
  maxOthers,
} from "../schema/startRule.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { keyIn, ownKey } from "../schema/ownKey.sql.js";
import { isReady, type HeadRow } from "../sql/fragments.sql.js";
import type { Head } from "./activeGroup.js";

/** Ids of tasks to skip, and keys of running tasks. Tasks with these keys are skipped, too. */
interface Skipped {
  readonly except: readonly string[];
  readonly keys?: readonly string[];
}

export interface ScannedGroup extends HeadRow {
  /** Whether the whole table is paused, or waits for a chain that runs alone. */
  readonly all: boolean;
}

/**
 * Reads the first due task of each of the next `limit` groups whose hashes are larger than `after`. The statement skips
 * through the index from group to group, so its cost depends on the number of groups and not on the number of tasks.
 */
export async function scanGroups(
  client: Client,
  table: TaskTable,
  request: Skipped & { readonly after: number; readonly limit: number },
): Promise<ScannedGroup[]> {
  const columns = `hash, ${maxOthers} AS max, id, ${barredColumns(table)}, ${gapMs()} AS gap_ms, ${isLate()} AS late`;
  const { rows } = await client.query<ScannedGroup>({
    name: "scan groups",
    text: `
WITH ${groupHeads(table, { columns, after: "$1", except: "$3", keys: "$4" })}
SELECT h.hash, h.max, h.id, h.gap_ms, h.late, ${isBarred(table, "h", "h.late")} AS paused, ${isTableBarred(table)} AS "all" FROM head AS h LIMIT $2`,
    values: [request.after, request.limit, request.except, ...keyParameter(table, request.keys ?? [])],
  });
  return rows;
}

export interface GroupPosition extends Head {
  readonly hash: number;
}

/**
 * In groups whose first due task is paused, searches for a due task that is not paused (see `PausedGroups`). For each
 * group, this reads the next `limit` due tasks behind a position, and returns the first of them whose group name is not
 * paused, or else the last one. It returns no row for a group without further due tasks, and none at all while the whole
 * table is paused, or waits for a chain that runs alone.
 */
export async function firstUnpaused(
  client: Client,
  table: TaskTable,
  groups: readonly GroupPosition[],
  limit: number,
  except: readonly string[],
  keys: readonly string[] = [],
): Promise<HeadRow[]> {
  const due = (from: string): string =>
    dueTasks(table, {
      columns: `id, ${maxOthers} AS max, ${barredColumns(table)}, ${gapMs()} AS gap_ms, ${isLate()} AS late`,
      where: `hash = ANY (ARRAY[g.hash]) AND ${from}`,
      except: "$5",
      keys: "$6",
      limit: "$4",
    });
  const { rows } = await client.query<HeadRow>({
    name: "first unpaused",
    text: `
SELECT g.hash, d.max, d.id, d.gap_ms, d.late, d.paused
FROM unnest($1::integer[], $2::integer[], $3::bigint[]) AS g(hash, max, id) CROSS JOIN LATERAL (
  SELECT n.* FROM (
    SELECT f.*, row_number() OVER () AS nth, ${isBarred(table, "f", "f.late")} AS paused FROM (
      (${due(`${maxOthers} = g.max AND id > g.id`)})
      UNION ALL
      (${due(`${maxOthers} < g.max`)})
      LIMIT $4
    ) AS f
  ) AS n ORDER BY n.paused, CASE WHEN n.paused THEN -n.nth ELSE n.nth END LIMIT 1
) AS d
WHERE NOT ${isTableBarred(table)}`,
    values: [
      groups.map(({ hash }) => hash),
      groups.map(({ max }) => max),
      groups.map(({ id }) => String(id)),
      limit,
      except,
      ...keyParameter(table, keys),
    ],
  });
  return rows;
}

export interface InsertedTask extends HeadRow {
  readonly due: boolean;
}

export async function insertedTasks(
  client: Client,
  table: TaskTable,
  after: bigint,
  limit: number,
): Promise<InsertedTask[]> {
  const { rows } = await client.query<InsertedTask>({
    name: "inserted tasks",
    text: `
SELECT t.id, t.hash, ${maxOthers} AS max, coalesce(t.ready AND t.plan <= now(), false) AS due,
  ${gapMs("t.")} AS gap_ms, ${isLate()} AS late, ${isBarred(table, "t", isLate("t."))} AS paused
FROM ${table.qualified} AS t WHERE t.id > $1::bigint ORDER BY t.id LIMIT $2`,
    values: [String(after), limit],
  });
  return rows;
}

export async function lastId(client: Client, table: TaskTable): Promise<bigint> {
  const { rows } = await client.query<{ id: string }>({
    name: "last id",
    text: `SELECT coalesce((SELECT id FROM ${table.qualified} ORDER BY id DESC LIMIT 1), 0)::text AS id`,
  });
  return BigInt(rows[0]?.id ?? 0);
}

/**
 * Reads the due tasks with these keys, which are as `keyOf` yields them. There is at most one of each key. `LIMIT 1`
 * keeps the planner from reading the whole index for a join.
 */
export async function dueWithKeys(client: Client, table: TaskTable, keys: readonly string[]): Promise<DueTask[]> {
  if (!table.hasKeys) return [];
  const hasKey =
    table.usersOwner === null
      ? "w.key = ANY (ARRAY[k.key])"
      : `${ownKey("w.")} = k.key AND w.key = ANY (ARRAY[${keyIn("k.key")}])`;
  const { rows } = await client.query<DueTask>({
    name: "due with keys",
    text: `
SELECT t.id::text AS id, t.hash, ${maxOthers} AS max FROM unnest($1::text[]) AS k(key) CROSS JOIN LATERAL (
  SELECT id, hash, max FROM ${table.qualified} AS w
  WHERE ${hasKey} AND w.key IS NOT NULL AND w.ready IS NOT NULL AND ${isReady} AND w.plan <= now() LIMIT 1
) AS t`,
    values: [keys],
  });
  return rows;
}
