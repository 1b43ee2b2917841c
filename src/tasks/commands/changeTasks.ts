import type { TaskTable } from "../../manager/schema/taskTable.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";

/** What can be done to tasks by their ids. */
export type Change = "stop" | "retry" | "run-now" | "delete" | "delete even running";

/** What came of it for one id. */
export interface Changed {
  readonly id: string;
  /**
   * `changed`; `refused` since its state does not allow it; `missing`; `locked` by somebody else's
   * transaction; `failed` with the server's words.
   */
  readonly outcome: "changed" | "refused" | "missing" | "locked" | "failed";
  /** Its state before; null when it is missing, or the server refused. */
  readonly state: string | null;
  /** Whether a session had it. */
  readonly held: boolean;
  /** Of a retried task: that its repetition goes on in another row, and so not in this one again. */
  readonly unlinked: boolean;
  readonly reason: string | null;
}

/** For which rows of `found` each change is allowed; its own WHERE, looked at under the row's lock. */
const allowed: Readonly<Record<Change, string>> = {
  stop: "state IN ('PLAN', 'TAKE', 'WORK')",
  retry: "state IN ('DONE', 'FAIL', 'GONE', 'STOP') AND NOT held",
  "run-now": "state = 'PLAN' AND NOT held",
  delete: "NOT held AND state NOT IN ('TAKE', 'WORK')",
  "delete even running": "true",
};

/** A row that repeats and has been repeated would begin a second series. */
const repeatedAlready = `t.id = ANY (ARRAY(
  SELECT c.parent FROM TABLE AS c WHERE EXISTS (SELECT FROM found WHERE repeats)
    AND c.parent = ANY (ARRAY(SELECT id FROM found WHERE repeats)) AND c.repeat > interval '0'))`;

function statement(change: Change, qualified: string): string {
  const rows = `t.id = ANY (ARRAY(SELECT id FROM found WHERE ${allowed[change]}))`;
  const repeated = repeatedAlready.replace("TABLE", () => qualified);
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
 * Changes tasks, each only as far as its state allows it, and tells what came of each id, in their
 * order. Rows that somebody has locked are left alone. Where the server refuses them together, they
 * are tried one by one.
 */
export async function changeTasks(
  client: Client,
  table: TaskTable,
  change: Change,
  ids: readonly string[],
): Promise<Changed[]> {
  try {
    return await changeTogether(client, table, change, ids);
  } catch (error) {
    if (sqlState(error) === null) throw error;
    const [id] = ids;
    if (ids.length === 1 && id !== undefined) return [failed(id, error)];
    const middle = ids.length >> 1;
    return [
      ...(await changeTasks(client, table, change, ids.slice(0, middle))),
      ...(await changeTasks(client, table, change, ids.slice(middle))),
    ];
  }
}

function failed(id: string, error: unknown): Changed {
  const reason = error instanceof Error ? error.message : String(error);
  return { id, outcome: "failed", state: null, held: false, unlinked: false, reason };
}

async function changeTogether(
  client: Client,
  { qualified }: TaskTable,
  change: Change,
  ids: readonly string[],
): Promise<Changed[]> {
  const { rows } = await client.query<Omit<Changed, "reason">>(
    `WITH asked AS (
       SELECT id, min(place) AS place FROM unnest($1::bigint[]) WITH ORDINALITY AS a(id, place) GROUP BY id
     ), found AS MATERIALIZED (
       SELECT t.id, t.state::text AS state, t.owner IS NOT NULL AS held, t.repeat > interval '0' AS repeats
       FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED
     ), changed AS (${statement(change, qualified)})
     SELECT a.id::text AS id, coalesce(f.state, t.state::text) AS state,
       coalesce(f.held, t.owner IS NOT NULL) AS held, coalesce(c.unlinked, false) AS unlinked,
       CASE WHEN c.id IS NOT NULL THEN 'changed' WHEN f.id IS NOT NULL THEN 'refused'
         WHEN t.id IS NOT NULL THEN 'locked' ELSE 'missing' END AS outcome
     FROM asked AS a LEFT JOIN found AS f ON f.id = a.id LEFT JOIN changed AS c ON c.id = a.id
     LEFT JOIN ${qualified} AS t ON t.id = a.id ORDER BY a.place`,
    [ids],
  );
  return rows.map((row) => ({ ...row, reason: null }));
}
