/** Statements about turns: a chain with `alone` takes its turn, begins it when nothing else runs, and ends it. */
import type { Client } from "../../shared/postgres/client.js";
import type { DueTask } from "../model/tasks.js";
import {
  isGroupPaused,
  isKeyFree,
  isLate,
  isNotIn,
  keyParameter,
  maxOthers,
  runsAlone,
  turnOf,
} from "../schema/startRule.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { hasId, isAlone, isReady } from "../sql/fragments.sql.js";

const maxTurnCandidates = 100;

/**
 * Ends the turns of chains that have ended, or that wait for a time, a pause or a task of no chain: nobody else could
 * start meanwhile, perhaps for ever. Returns their number.
 *
 * @param claimed ids of all claimed tasks
 * @param rejected ids of due tasks that the server refuses to claim
 */
export async function endTurns(
  client: Client,
  table: TaskTable,
  claimed: readonly string[],
  rejected: readonly string[],
): Promise<number> {
  const { qualified, turns } = table;
  const { rowCount } = await client.query({
    name: "end turns",
    text: `
WITH claimed AS MATERIALIZED (
  SELECT ${turnOf("t")} AS turn FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[]) AND ${runsAlone(table, "t")} AND t.owner IS NOT NULL
), waiting AS MATERIALIZED (
  SELECT ${turnOf("t")} AS turn, t.plan <= now() AND NOT ${isGroupPaused(table, "t")} AND ${isNotIn("t.id", "$2")} AS due,
    t.attempt > 0 AND t.plan < 'infinity' OR t.wait >= 0 AND NOT EXISTS (
      SELECT FROM ${qualified} AS p WHERE p.id = ANY (t.after) AND (p.ready IS NOT NULL OR p.owner IS NOT NULL)) AS follows
  FROM ${qualified} AS t WHERE ${isAlone} AND ${runsAlone(table, "t")} AND ${turnOf("t")} = ANY (ARRAY(SELECT u.turn FROM ${turns} AS u))
)
DELETE FROM ${turns} AS u WHERE NOT EXISTS (SELECT FROM claimed AS c WHERE c.turn = u.turn)
  AND NOT EXISTS (SELECT FROM waiting AS w WHERE w.turn = u.turn AND (w.due OR u.begun AND w.follows))`,
    values: [claimed, rejected],
  });
  return rowCount ?? 0;
}

/**
 * Lets the chains take turns that are due, in the order of their planned times. A chain that is alone in the table takes
 * its turn when nobody has one, and those behind it wait for that. Of each group, one chain can have a turn. A task whose
 * row is locked could not start, so others need not wait for it. Considers only the earliest chains without a turn, so
 * that many that wait do not make each turn slower. Returns the number of turns taken.
 */
export async function takeTurns(
  client: Client,
  table: TaskTable,
  except: readonly string[],
  keys: readonly string[],
): Promise<number> {
  const { qualified, turns } = table;
  const { rowCount } = await client.query({
    name: "take turns",
    text: `
WITH due AS MATERIALIZED (
  SELECT ${turnOf("t")} AS turn, t.plan, CASE WHEN t.alone = 'group' THEN t."group" END AS "group" FROM ${qualified} AS t
  WHERE ${isAlone} AND ${runsAlone(table, "t")} AND t.plan <= now() AND NOT ${isLate("t.")} AND NOT ${isGroupPaused(table, "t")}
    AND NOT EXISTS (
      SELECT FROM ${turns} AS u WHERE u."group" IS NULL OR u.turn = ${turnOf("t")} OR t.alone = 'group' AND u."group" = t."group")
    AND ${isNotIn("t.id", "$1")} AND ${isKeyFree(table, "$2")}
  ORDER BY t.plan, t.id LIMIT ${maxTurnCandidates} FOR NO KEY UPDATE OF t SKIP LOCKED
), first AS MATERIALIZED (
  SELECT DISTINCT ON ("group") turn, plan, "group" FROM due ORDER BY "group", plan, turn
)
INSERT INTO ${turns} (turn, "group") SELECT f.turn, f."group" FROM first AS f
WHERE NOT EXISTS (SELECT FROM ${turns} AS u WHERE u."group" IS NULL OR f."group" IS NULL OR u."group" = f."group")
  AND NOT EXISTS (SELECT FROM first AS e WHERE (e."group" IS NULL) <> (f."group" IS NULL) AND (e.plan, e.turn) < (f.plan, f.turn))`,
    values: [except, ...keyParameter(table, keys)],
  });
  return rowCount ?? 0;
}

/**
 * Begins the turns for which no other task runs any more. A running task without a row may be one of any group.
 *
 * @param running ids of all tasks that may run
 */
export async function beginTurns(client: Client, table: TaskTable, running: readonly string[]): Promise<number> {
  const { qualified, turns } = table;
  const { rowCount } = await client.query({
    name: "begin turns",
    text: `
UPDATE ${turns} AS u SET begun = true WHERE NOT u.begun AND NOT EXISTS (
  SELECT FROM unnest($1::bigint[]) AS r(id) LEFT JOIN LATERAL (
    SELECT t.id, t."group", CASE WHEN ${runsAlone(table, "t")} THEN ${turnOf("t")} END AS turn FROM ${qualified} AS t WHERE ${hasId("r.id")}
  ) AS t ON true
  WHERE t.id IS NULL OR (u."group" IS NULL OR t."group" = u."group") AND t.turn IS DISTINCT FROM u.turn)`,
    values: [running],
  });
  return rowCount ?? 0;
}

/** How many turns there are, and the first due task of each group whose turn has begun. */
export async function readTurns(
  client: Client,
  table: TaskTable,
  except: readonly string[],
): Promise<{ readonly count: number; readonly due: readonly DueTask[] }> {
  const { qualified, turns } = table;
  const { rows } = await client.query<{ count: number; id: string | null } & Pick<DueTask, "hash" | "max">>({
    name: "turns",
    text: `
SELECT c.count, d.id, d.hash, d.max FROM (SELECT count(*)::integer AS count FROM ${turns}) AS c LEFT JOIN (
  SELECT DISTINCT ON (t.hash) t.id::text AS id, t.hash, ${maxOthers} AS max FROM ${qualified} AS t
  WHERE ${isAlone} AND ${runsAlone(table, "t")} AND ${isReady} AND t.plan <= now() AND NOT ${isGroupPaused(table, "t")} AND ${isNotIn("t.id", "$1")}
    AND ${turnOf("t")} = ANY (ARRAY(SELECT u.turn FROM ${turns} AS u WHERE u.begun))
  ORDER BY t.hash, ${maxOthers} DESC, t.id
) AS d ON true`,
    values: [except],
  });
  const due = rows.flatMap(({ id, hash, max }) => (id === null ? [] : { id, hash, max }));
  return { count: rows[0]?.count ?? 0, due };
}
