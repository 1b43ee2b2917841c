import type { Client } from "../../shared/postgres/client.js";
import { columnsUnchanged, type ColumnSet } from "../schema/columnSet.js";
import { owedNotePattern, owedPrefix } from "../schema/owedTable.js";
import type { TaskTable } from "../schema/taskTable.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { isOwing, runsQueryAgain } from "../schema/schedulesView.sql.js";
import { mustRunQuery } from "../schema/startRule.sql.js";
import { hasId, isAwaited, isSeen } from "../sql/fragments.sql.js";
import { successorCtes } from "../sql/insertSuccessors.sql.js";

/** The newest first: the older ones are more likely to be rejected for good. */
export async function readOwed(
  client: Client,
  { qualifiedOwed }: TaskTable,
  limits: { readonly except: readonly string[]; readonly limit: number },
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: "owed",
    text: `SELECT task::text AS id FROM ${qualifiedOwed} WHERE task <> ALL ($1::bigint[]) ORDER BY task DESC LIMIT $2`,
    values: [limits.except, limits.limit],
  });
  return rows.map(({ id }) => id);
}

interface TriedOwed {
  readonly id: string;
  readonly successor: string | null;
  /** Why the query of the task's rule runs again. Null if it does not. */
  readonly reason: string | null;
}

/**
 * Inserts the successors that these tasks owe, and removes the notes from their errors. Tasks that would have been
 * deleted at their end are deleted now. Nothing is owed any longer if the task was deleted, stopped, or set to PLAN. A
 * query of which the server has rejected the time runs again, and its task owes the time until it is accepted. Left for
 * the next time are rows that are locked, have just been changed, or run their queries, and all if the columns of the
 * table have changed.
 *
 * @param keepsRow whether the rows of the tasks stay as they are
 * @returns the tasks that owe nothing any longer, with the id of the successor, or null if the schedule is over or
 *   another task goes on with it. Also the tasks whose queries run again, with the reason for it.
 */
export async function insertOwed(
  client: Client,
  table: TaskTable,
  columns: ColumnSet,
  ids: readonly string[],
  keepsRow: boolean,
): Promise<readonly TriedOwed[]> {
  const { rows } = await client.query<TriedOwed>({
    name: `insert owed ${columns.name}`,
    text: insertOwedStatement(table, columns),
    values: [ids, keepsRow],
  });
  return rows;
}

/** SQL of the error of row `t` without the note. */
const rest = `nullif(regexp_replace(t.error, ${literal(owedNotePattern)}, ''), '')`;

/** SQL condition: row `t`, which owes nothing any longer, is to be deleted. */
const deletable = `t.delete AND t.output IS NULL AND ${rest} IS NULL AND NOT (${isAwaited})`;

/** Does with a row that `insertOwed` had to keep what it does with the others. A locked row stays as it is. */
export async function settleKept(client: Client, { qualified, qualifiedOwed }: TaskTable, id: string): Promise<void> {
  await client.query({
    name: "settle kept",
    text: `
WITH locked AS MATERIALIZED (
  SELECT t.id, ${rest} AS error, ${deletable} AS deletable FROM ${qualified} AS t
  WHERE t.id = $1::bigint AND ${isOwing("t")} AND NOT EXISTS (SELECT FROM ${qualifiedOwed} AS o WHERE o.task = t.id)
  FOR UPDATE SKIP LOCKED
), deleted AS (
  DELETE FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM locked WHERE deletable))
)
UPDATE ${qualified} AS t SET error = l.error FROM locked AS l WHERE ${hasId("l.id")} AND NOT l.deletable`,
    values: [id],
  });
}

function insertOwedStatement(table: TaskTable, columns: ColumnSet): string {
  const { qualified, qualifiedOwed } = table;
  return `
WITH asked AS MATERIALIZED (
  SELECT task FROM ${qualifiedOwed} WHERE task = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED
), locked AS MATERIALIZED (
  SELECT l.* FROM (
    SELECT t.id, t.ctid AS version, t.stop, t.state::text AS state, ${rest} AS error,
      ${deletable} AS deletable,
      ${isOwing("t")} AS owes, CASE WHEN ${runsQueryAgain("t")} THEN substr(t.error, ${owedPrefix.length + 1}) END AS reason,
      ${mustRunQuery("t.")} AND t.state::text IN ('TAKE', 'WORK') AS computing
    FROM ${qualified} AS t WHERE t.id = ANY (ARRAY(SELECT task FROM asked)) AND ${columnsUnchanged(table, columns)}
    FOR UPDATE SKIP LOCKED
  ) AS l WHERE ${isSeen(table)}
), again AS MATERIALIZED (
  SELECT id, coalesce(stop, now()) AS stop, state AS outcome FROM locked WHERE owes
), ${successorCtes(table, columns, "again")}, settled AS (
  UPDATE ${qualified} AS t SET error = l.error FROM locked AS l
  WHERE ${hasId("l.id")} AND l.owes AND NOT l.deletable AND NOT $2::boolean
), deleted AS (
  DELETE FROM ${qualified} WHERE NOT $2::boolean AND id = ANY (ARRAY(SELECT id FROM locked WHERE owes AND deletable))
), asked_again AS (
  UPDATE ${qualified} SET plan = now(), ready = true WHERE id = ANY (ARRAY(SELECT id FROM locked WHERE reason IS NOT NULL))
), forgotten AS (
  DELETE FROM ${qualifiedOwed} AS o WHERE o.task = ANY (ARRAY(SELECT task FROM asked))
    AND (o.task IN (SELECT id FROM locked WHERE reason IS NULL AND NOT computing) OR NOT EXISTS (SELECT FROM ${qualified} AS t WHERE ${hasId("o.task")}))
  RETURNING o.task
)
SELECT f.task::text AS id, (SELECT min(r.id)::text FROM repeated AS r WHERE r.parent = f.task) AS successor, NULL AS reason FROM forgotten AS f
UNION ALL SELECT id::text, NULL, reason FROM locked WHERE reason IS NOT NULL`;
}

/** A sequence that would have fewer ids left is not set forward: some id is far ahead of all others. */
const minLeft = 1_000;

interface Advanced {
  readonly sequence: string;
  readonly from: string;
  readonly to: string;
}

/**
 * Sets the sequence of the ids forward if the table has larger ids, in steps of its increment, so that servers that
 * share the ids out among them still do. Null if nothing was changed.
 *
 * @param anyStep whether to do so even if the increment is not 1, and a larger id can be that of another server
 */
export async function advanceIdSequence(client: Client, table: TaskTable, anyStep: boolean): Promise<Advanced | null> {
  const { rows: found } = await client.query<{ schema: string; name: string }>(
    `SELECT n.nspname AS schema, c.relname AS name
     FROM pg_attribute AS a
       LEFT JOIN pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
       JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_class'::regclass
         OR d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid
           AND d.refobjsubid = a.attnum AND d.deptype = 'i'
       JOIN pg_class AS c ON c.oid IN (d.objid, d.refobjid) AND c.relkind = 'S'
       JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE a.attrelid = $1::regclass AND a.attname = 'id' LIMIT 1`,
    [table.qualified],
  );
  const [sequence] = found;
  if (sequence === undefined) return null;
  const name = `${identifier(sequence.schema)}.${identifier(sequence.name)}`;
  const { rows } = await client.query<{ from: string; to: string }>(
    `SELECT s.last_value::text AS "from",
       setval($1::regclass, s.last_value + ceil((m.id - s.last_value)::numeric / q.seqincrement)::bigint * q.seqincrement)::text AS "to"
     FROM ${name} AS s, pg_sequence AS q, (SELECT max(id)::bigint AS id FROM ${table.qualified}) AS m
     WHERE q.seqrelid = $1::regclass AND m.id >= s.last_value + CASE WHEN s.is_called THEN 1 ELSE 0 END
       AND CASE WHEN q.seqincrement > 0 THEN q.seqmax - m.id > ${minLeft} * q.seqincrement ELSE false END
       AND (q.seqincrement = 1 OR $2::boolean)`,
    [name, anyStep],
  );
  const [advanced] = rows;
  return advanced === undefined ? null : { sequence: `${sequence.schema}.${sequence.name}`, ...advanced };
}
