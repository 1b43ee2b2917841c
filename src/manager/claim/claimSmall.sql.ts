import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import { assigned, claimedColumns, toTask, unflushed, type ClaimedRow } from "../sql/claimedTask.sql.js";
import { nextPlanQuery, toNextPlan, type NextPlanRow } from "../groups/plannedTasks.sql.js";
import { settingsVersionQuery } from "../sessions/settingsVersion.sql.js";
import type { ClaimedTask, DueTask } from "../model/tasks.js";
import type { GroupInUse } from "../groups/groups.js";
import type { UnclaimedTasks } from "../groups/groupScanner.js";
import { hasId, isReady } from "../sql/fragments.sql.js";
import type { ClaimConditions } from "./claimFull.sql.js";
import { maxSmallClaim } from "../model/tuning.js";
import { dueTasks, hasGap, isBarred, isKeyFree, isLate, keyParameter, maxOthers } from "../schema/startRule.sql.js";

export interface SmallClaimRequest extends ClaimConditions {
  /** Sessions without a task, which are not dedicated to a group. */
  readonly sessions: readonly BackendIdentity[];
  /** How many of these sessions are not reserved for groups without running tasks. */
  readonly unreserved: number;
  readonly groups: readonly GroupInUse[];
}

export interface SmallClaim extends UnclaimedTasks {
  readonly claimed: readonly ClaimedTask[];
  readonly settingsVersion: string;
}

/** A due task, or the only row if none is due. */
interface SmallClaimRow extends NextPlanRow {
  readonly settings_version: string;
  readonly complete: boolean;
  /** Null if no task is due. A number if the id column of the table is an integer, otherwise a string. */
  readonly due_id: string | number | null;
  readonly due_hash: number;
  readonly due_max: number;
}

/**
 * Small claim: reads all due tasks of the table, if they are few, and gives those that can start to the sessions, each
 * to one. It also reads what a cycle has to know besides: when the next task becomes due, and the version of the
 * settings.
 *
 * It claims nothing if more than `maxSmallClaim` tasks are due, if more tasks can start than there are sessions, if one
 * of a group that already runs something would need a reserved session, or if a due task is late, is paused or has a
 * gap.
 */
export async function claimSmall(client: Client, table: TaskTable, request: SmallClaimRequest): Promise<SmallClaim> {
  const { sessions, unreserved, groups, except, runningKeys = [], traced = false } = request;
  const { rows } = await client.query<SmallClaimRow & Partial<ClaimedRow>>({
    name: traced ? "claim small traced" : "claim small",
    text: claimSmallStatement(table, traced),
    values: [
      sessions.map(({ owner }) => owner),
      sessions.map(({ pid }) => pid),
      except,
      groups.map(({ hash }) => hash),
      groups.map(({ running }) => running),
      unreserved,
      ...keyParameter(table, runningKeys),
    ],
  });
  return toSmallClaim(rows);
}

function toSmallClaim(rows: readonly (SmallClaimRow | (SmallClaimRow & ClaimedRow))[]): SmallClaim {
  const [first] = rows;
  const isComplete = first?.complete === true;
  const claimed: ClaimedTask[] = [];
  const waiting: DueTask[] = [];
  for (const row of rows) {
    const { due_id: id, due_hash: hash, due_max: max } = row;
    if (isClaimed(row)) claimed.push(toTask(row));
    else if (isComplete && id !== null) waiting.push({ id: String(id), hash, max });
  }
  return {
    claimed,
    waiting,
    isComplete,
    nextPlan: toNextPlan(first),
    settingsVersion: first?.settings_version ?? "",
  };
}

/** If the task of the row was not claimed, the columns of `ClaimedRow` are null. */
const isClaimed = (row: object): row is ClaimedRow => "owner" in row && row.owner !== null;

function claimSmallStatement(table: TaskTable, traced: boolean): string {
  const { qualified } = table;
  const isFree = isKeyFree(table, "$7");
  return `
WITH due AS MATERIALIZED (
${dueTasks(table, {
  columns: `id, hash, ${maxOthers} AS max, ${isLate()} OR ${hasGap()} OR ${isBarred(table, "d", "false")} AS needs_full`,
  where: "hash >= -2147483648",
  except: "$3",
  keys: "$7",
  limit: maxSmallClaim + 1,
})}
), fits AS MATERIALIZED (
  SELECT count(*) <= ${maxSmallClaim} AND NOT coalesce(bool_or(needs_full), false) AS ok FROM due
), startable AS MATERIALIZED (
  SELECT d.id, d.others, row_number() OVER (ORDER BY d.max - d.others DESC, d.id) AS place FROM (
    SELECT id, hash, max, row_number() OVER (PARTITION BY hash ORDER BY max DESC, id) - 1
      + coalesce((SELECT g.running FROM unnest($4::integer[], $5::bigint[]) AS g(hash, running) WHERE g.hash = due.hash), 0) AS others
    FROM due
  ) AS d WHERE d.others <= d.max
), chosen AS MATERIALIZED (
  SELECT id, ($1::text[])[place] AS owner, ($2::integer[])[place] AS pid, true AS starts_now FROM startable
  WHERE (SELECT ok FROM fits) AND (
    SELECT count(*) <= cardinality($1) AND (count(*) <= $6::integer OR NOT bool_or(others > 0)) FROM startable
  )
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified}
  WHERE id = ANY (ARRAY(SELECT id FROM chosen)) AND ${isReady} AND state::text = 'PLAN' AND plan <= now() AND ${isFree}
  FOR NO KEY UPDATE SKIP LOCKED
), claimed AS (
  UPDATE ${qualified} AS t SET ${assigned(table)}
  FROM chosen AS g
  WHERE ${hasId("g.id")} AND (g.id IN (SELECT id FROM locked)) IS TRUE
  RETURNING ${claimedColumns(table, traced)}
)
SELECT p.*, (${settingsVersionQuery}) AS settings_version,
  (SELECT ok FROM fits) AND (SELECT count(*) FROM startable) = (SELECT count(*) FROM claimed) AS complete,
  d.id AS due_id, d.hash AS due_hash, d.max AS due_max, c.*
FROM (${nextPlanQuery(table, "'{}'")}) AS p
LEFT JOIN due AS d ON true
LEFT JOIN (SELECT * FROM claimed WHERE (SELECT ${unflushed} FROM claimed) IS NOT NULL) AS c ON c.id = d.id`;
}
