/**
 * The rule that decides whether a task may start, and the reason if not. The claims read the rows to which it applies
 * (`dueTasks`) and use its conditions one by one, because they need their values. The stall monitor, `why`, `doctor`, the
 * page and the soak test ask for the reasons (`startBlockers`). Only the manager knows its sessions, so the rest of the
 * rule is in src/manager/groups/activeGroup.ts: which groups a claim reads.
 */
import { literal } from "../../shared/postgres/quoting.js";
import { ownKey } from "./ownKey.sql.js";
import { hasSchedule } from "./schedulesView.sql.js";
import type { TaskTable } from "./taskTable.js";

export type StartBlocker =
  | "waits-for-others"
  | "schedule-paused"
  | "never-due"
  | "retry"
  | "not-due"
  | "too-late"
  | "table-paused"
  | "group-paused"
  | "out-of-queue"
  | "key-runs"
  | "turn"
  | "group-limit"
  | "gap";

/** SQL of what a row does not say. Null stands for unknown, and blocks nothing. */
interface Circumstances {
  readonly running: string;
  readonly keyRuns: string;
  /** How long no task of the group has started, in ms. */
  readonly quietMs: string;
}

/** SQL of an array with the reasons for which a task in PLAN must not start, most important first. */
export function startBlockers(table: TaskTable, { running, keyRuns, quietMs }: Circumstances, row = "t"): string {
  const dueIf = (condition: string): string => `${row}.plan <= now() AND ${condition}`;
  const conditions: readonly (readonly [condition: string, blocker: StartBlocker])[] = [
    [isTablePaused(table), "table-paused"],
    [isNamedPaused(table, row), "group-paused"],
    [`${row}.ready IS NULL`, "out-of-queue"],
    [dueIf(keyRuns), "key-runs"],
    [dueIf(waitsForTurn(table, row)), "turn"],
    [dueIf(`${running} > greatest(${row}.max, 0)`), "group-limit"],
    [dueIf(`${hasGap(`${row}.`)} AND ${gapMs(`${row}.`)} > ${quietMs}`), "gap"],
  ];
  const own = `CASE WHEN ${row}.wait >= 0 THEN 'waits-for-others'
      WHEN ${row}.plan = 'infinity' THEN CASE WHEN ${hasSchedule(row)} THEN 'schedule-paused' ELSE 'never-due' END
      WHEN ${row}.plan > now() THEN CASE WHEN ${row}.attempt > 0 THEN 'retry' ELSE 'not-due' END
      WHEN ${isLate(`${row}.`)} THEN 'too-late' END`;
  const others = conditions.map(([condition, blocker]) => `CASE WHEN ${condition} THEN '${blocker}' END`);
  return `array_remove(ARRAY[${[own, ...others].join(",\n    ")}], NULL)`;
}

/**
 * SQL of a query for due tasks, of the row `d`, in the order of the index of due tasks, in which the tasks of a group
 * start. Any other index would need a sort, so the planner does not choose it. Leaves out tasks whose key runs, and those
 * whose group's pause still has to be written.
 *
 * @param query.where a condition on `hash` that compares it as an array element. With `hash = …`, the planner would drop
 *   it from ORDER BY, and where `max` is constant as well, might read the rows of all groups by the primary key.
 */
export const dueTasks = (
  table: TaskTable,
  { columns, where, except, keys, limit }: DueQuery & { readonly where: string; readonly limit: number | string },
): string => `
      SELECT ${columns} FROM ${table.qualified} AS d
      WHERE ready AND ${where} AND plan <= now()${except === undefined ? "" : ` AND ${isNotIn("id", except)}`}${keys === undefined ? "" : ` AND ${isKeyFree(table, keys)}`} AND id <> ALL (${deferredIds})
      ORDER BY hash, ${maxOthers} DESC, id LIMIT ${limit}`;

interface DueQuery {
  readonly columns: string;
  readonly except?: string;
  readonly keys?: string;
}

/**
 * SQL of a recursive CTE `head` with the first due task of each group, to be read with a LIMIT. It skips through the
 * index from group to group, so its cost depends on the number of groups. `after` is the last visited hash; -2147483649
 * precedes all.
 */
export function groupHeads(table: TaskTable, { after, ...query }: DueQuery & { readonly after: string }): string {
  const first = (from: string): string => dueTasks(table, { ...query, where: `hash >= ${from}::bigint + 1`, limit: 1 });
  return `RECURSIVE head AS (
  (${first(after)})
  UNION ALL
  SELECT n.* FROM head AS h CROSS JOIN LATERAL (${first("h.hash")}) AS n
)`;
}

/** How many others of its group can run when a task starts. A negative `max` counts as 0, as in the index. */
export const maxOthers = "greatest(max, 0)";

/**
 * The task expires, because `active` or the time limit of its chain is over. `active` never is if it exceeds the range
 * of dates, or while the plan is to be computed.
 */
export const isLate = (alias = ""): string => `((${alias}deadline <= now()) IS TRUE OR ${isInactive(alias)})`;

const isInactive = (alias: string): string =>
  `${alias}max >= 0 AND CASE WHEN ${alias}active < interval '100000 years' THEN ${alias}plan + ${alias}active <= now() ELSE false END AND NOT ${mustRunQuery(alias)}`;

/** SQL condition: the rule is a query that has to run before the planned time is known. */
export const mustRunQuery = (alias = ""): string => `(${alias}wait IS NOT NULL AND ${alias}wait < 0)`;

/** The error of a schedule whose query has returned no time before there was a run. */
export const noTimeError = "ERROR:  rule returned no time";

/** SQL of the gap of a row, in ms. 0 if it has none. */
export const gapMs = (alias = ""): string =>
  `CASE WHEN ${alias}gap > interval '0' THEN least(date_part('epoch', ${alias}gap) * 1000, 1e15) ELSE 0 END`;

export const hasGap = (alias = ""): string => `(${alias}gap > interval '0') IS TRUE`;

export function isKeyFree({ hasKeys, usersOwner }: TaskTable, parameter: string): string {
  if (!hasKeys) return "true";
  const key = usersOwner === null ? "key" : ownKey();
  return `(key IS NULL OR (${key} IN (SELECT unnest(${parameter}::text[]))) IS NOT TRUE)`;
}

export const keyParameter = (
  { hasKeys }: TaskTable,
  keys: readonly string[],
): readonly [] | readonly [readonly string[]] => (hasKeys ? [keys] : []);

const isTablePaused = ({ pauses }: TaskTable): string => `EXISTS (SELECT FROM ${pauses} WHERE "group" IS NULL)`;

const isNamedPaused = ({ pauses }: TaskTable, task: string): string =>
  `${task}."group" = ANY (ARRAY(SELECT "group" FROM ${pauses} WHERE "group" IS NOT NULL))`;

export const isGroupPaused = (table: TaskTable, task: string): string => `
    (${isNamedPaused(table, task)}
      OR ${isTablePaused(table)})`;

/** SQL condition: the task is to run alone. With users, only the owner's are: others could stop the table for all. */
export const runsAlone = ({ usersOwner }: TaskTable, task: string): string =>
  `${task}.alone IS NOT NULL${usersOwner === null ? "" : ` AND ${task}.role = ${literal(usersOwner)}`}`;

/** SQL of the id that tells chains with `alone` apart: that of their first task. */
export const turnOf = (task: string): string => `coalesce(${task}.turn, ${task}.id)`;

/** SQL condition: the whole table waits for a chain that runs alone, or is the next to do so. */
const tableWaitsForTurn = ({ turns }: TaskTable): string => `EXISTS (SELECT FROM ${turns} WHERE "group" IS NULL)`;

/**
 * SQL condition: a chain that runs alone, or is the next to do so, keeps the task from starting; or the task is to run
 * alone itself, and the turn of its chain has not begun.
 */
function waitsForTurn(table: TaskTable, task: string): string {
  const { turns } = table;
  const groupWaits = `${task}."group" = ANY (ARRAY(SELECT "group" FROM ${turns} WHERE "group" IS NOT NULL))`;
  return `CASE WHEN ${runsAlone(table, task)} THEN (${turnOf(task)} = ANY (ARRAY(SELECT turn FROM ${turns} WHERE begun))) IS NOT TRUE
      WHEN EXISTS (SELECT FROM ${turns}) THEN ${tableWaitsForTurn(table)} OR ${groupWaits} ELSE false END`;
}

/** The columns of a row that `isBarred` reads. */
export const barredColumns = ({ usersOwner }: TaskTable): string =>
  `"group", alone, turn${usersOwner === null ? "" : ", role"}`;

/** SQL condition: a pause or a chain that runs alone keeps the task from starting. Late ones expire meanwhile. */
export const isBarred = (table: TaskTable, task: string, late: string): string =>
  `(${isGroupPaused(table, task)} OR NOT ${late} AND ${waitsForTurn(table, task)})`;

/** SQL condition: nothing of the table may start, except for a chain that runs alone. */
export const isTableBarred = (table: TaskTable): string => `(${isTablePaused(table)} OR ${tableWaitsForTurn(table)})`;

/** Fast for long arrays: the subquery is hashed, while `<> ALL` would compare each row with each element. */
export const isNotIn = (id: string, parameter: string): string =>
  `(${id} IN (SELECT unnest(${parameter}::bigint[]))) IS NOT TRUE`;

/** A setting with the ids of due tasks that must not start: their group's pause still has to be written. */
export const deferredSetting = "pgtask.paused";

export const deferredArray = `coalesce(nullif(current_setting('${deferredSetting}', true), ''), '{}')::bigint[]`;

const deferredIds = `ARRAY(SELECT unnest(${deferredArray}))`;
