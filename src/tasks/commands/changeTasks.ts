import type { TaskTable } from "../../manager/schema/taskTable.js";
import { errorMessage } from "../../shared/errors.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { finalStates } from "../../shared/taskState.js";

/** A kind of change that can be made to tasks selected by id. */
export type Change = "stop" | "retry" | "run-now" | "delete" | "delete even running";

/** The result of a change for one id. */
export interface ChangeResult {
  readonly id: string;
  /**
   * `changed`, or the reason why the task was not changed. `refused` means that the task's state does not allow the
   * change. `missing` means that there is no such task. `locked` means that another transaction has locked the row.
   * `failed` means that the server reported an error.
   */
  readonly outcome: "changed" | "refused" | "missing" | "locked" | "failed";
  /** The task's state before the change. Null if the outcome is `missing` or `failed`. */
  readonly state: string | null;
  /** Whether the task was claimed, that is, whether it had an owner. */
  readonly claimed: boolean;
  /** For a retried task, whether its `repeat` was cleared because the repetition continues in another row. */
  readonly unlinked: boolean;
  readonly reason: string | null;
}

/**
 * For each change, the SQL condition that a row of `found` must meet. `found` contains the tasks with the given ids,
 * except those in locked rows. The condition is evaluated while the row is locked.
 */
const allowedRows: Readonly<Record<Change, string>> = {
  stop: "state IN ('PLAN', 'TAKE', 'WORK')",
  retry: `state IN (${finalStates.map(literal).join(", ")}) AND NOT claimed`,
  "run-now": "state = 'PLAN' AND NOT claimed",
  delete: "NOT claimed AND state NOT IN ('TAKE', 'WORK')",
  "delete even running": "true",
};

/**
 * SQL condition that is true if a repeating task already has a successor (the task of the next repetition). If such a
 * task were retried with its `repeat`, a second series of repetitions would start.
 */
const hasSuccessor = `t.id = ANY (ARRAY(
  SELECT c.parent FROM TABLE AS c WHERE EXISTS (SELECT FROM found WHERE repeats)
    AND c.parent = ANY (ARRAY(SELECT id FROM found WHERE repeats)) AND c.repeat > interval '0'))`;

function changeSql(change: Change, qualified: string): string {
  const rows = `t.id = ANY (ARRAY(SELECT id FROM found WHERE ${allowedRows[change]}))`;
  const repeated = hasSuccessor.replace("TABLE", () => qualified);
  switch (change) {
    case "stop":
      return `UPDATE ${qualified} AS t SET state = 'STOP' WHERE ${rows} RETURNING t.id, false AS unlinked`;
    case "run-now":
      return `UPDATE ${qualified} AS t SET plan = statement_timestamp() WHERE ${rows} RETURNING t.id, false AS unlinked`;
    case "retry":
      return `UPDATE ${qualified} AS t SET state = 'PLAN', plan = statement_timestamp(), crash = 0,
        repeat = CASE WHEN ${repeated} THEN interval '0' ELSE t.repeat END,
        take = NULL, start = NULL, stop = NULL, pid = NULL, output = NULL, error = NULL
        WHERE ${rows} RETURNING t.id, t.repeat = interval '0' AND EXISTS (SELECT FROM found AS f WHERE f.id = t.id AND f.repeats) AS unlinked`;
    case "delete":
    case "delete even running":
      return `DELETE FROM ${qualified} AS t WHERE ${rows} RETURNING t.id, false AS unlinked`;
    default:
      return change satisfies never;
  }
}

/**
 * Changes tasks if their states allow it. Locked rows are skipped. If the server rejects the statement, the ids are
 * split in halves, and each half is tried separately.
 *
 * @returns a result for each id, in the order of the ids.
 */
export async function changeTasks(
  client: Client,
  table: TaskTable,
  change: Change,
  ids: readonly string[],
): Promise<ChangeResult[]> {
  try {
    return await changeTogether(client, table, change, ids);
  } catch (error) {
    if (sqlState(error) === null) throw error;
    const [id] = ids;
    if (ids.length === 1 && id !== undefined) return [failedResult(id, error)];
    const middle = ids.length >> 1;
    return [
      ...(await changeTasks(client, table, change, ids.slice(0, middle))),
      ...(await changeTasks(client, table, change, ids.slice(middle))),
    ];
  }
}

function failedResult(id: string, error: unknown): ChangeResult {
  return {
    id,
    outcome: "failed",
    state: null,
    claimed: false,
    unlinked: false,
    reason: errorMessage(error),
  };
}

async function changeTogether(
  client: Client,
  { qualified }: TaskTable,
  change: Change,
  ids: readonly string[],
): Promise<ChangeResult[]> {
  const { rows } = await client.query<Omit<ChangeResult, "reason">>(
    `WITH asked AS (
       SELECT id, min(place) AS place FROM unnest($1::bigint[]) WITH ORDINALITY AS a(id, place) GROUP BY id
     ), found AS MATERIALIZED (
       SELECT t.id, t.state::text AS state, t.owner IS NOT NULL AS claimed, t.repeat > interval '0' AS repeats
       FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED
     ), changed AS (${changeSql(change, qualified)})
     SELECT a.id::text AS id, coalesce(f.state, t.state::text) AS state,
       coalesce(f.claimed, t.owner IS NOT NULL) AS claimed, coalesce(c.unlinked, false) AS unlinked,
       CASE WHEN c.id IS NOT NULL THEN 'changed' WHEN f.id IS NOT NULL THEN 'refused'
         WHEN t.id IS NOT NULL THEN 'locked' ELSE 'missing' END AS outcome
     FROM asked AS a LEFT JOIN found AS f ON f.id = a.id LEFT JOIN changed AS c ON c.id = a.id
     LEFT JOIN ${qualified} AS t ON t.id = a.id ORDER BY a.place`,
    [ids],
  );
  return rows.map((row) => ({ ...row, reason: null }));
}
