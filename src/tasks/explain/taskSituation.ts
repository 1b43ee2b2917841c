import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { readSessions, shownGroups } from "../queries/executorSessions.js";
import { isoTime, milliseconds } from "../time.js";

/** Everything about one task that decides whether it runs now. */
export interface Situation {
  readonly id: string;
  readonly state: string;
  readonly group: string | null;
  readonly max: number;
  readonly plan: string | null;
  /** Until its plan, in ms, below 0 when that has come; null when it never comes. */
  readonly waitMs: number | null;
  readonly ready: boolean | null;
  /** `plan + active` has passed. */
  readonly tooLate: boolean;
  readonly start: string | null;
  readonly stop: string | null;
  readonly pid: number | null;
  /** Whether it runs in another database, by `remote`. */
  readonly remote: boolean;
  /** First line of its error. */
  readonly problem: string | null;
  /** The session that has it: pid and start of its server process; null when none has. */
  readonly owner: string | null;
  /** Whether that server process is there, as far as this role may see. */
  readonly ownerLives: boolean;
  /** Whether that has done nothing for a second since the task's start, or has begun another one, as far as this role may see. */
  readonly runEnded: boolean;
  /** Sessions of its group that run something. */
  readonly groupRuns: number;
  /** Ids of their tasks, as far as they were found, at most ten. */
  readonly heldBy: readonly string[];
  /** Due tasks of its group that start before it; with `aheadMore` there are more of them. */
  readonly ahead: number;
  readonly aheadMore: boolean;
  /** Sessions of the whole table that run something. */
  readonly tableRuns: number;
}

/** Rows that are looked through for those that run: before the task, and the newest ones. */
const mostLooked = 10_000;
/** Due tasks of its group that are counted. */
const mostAhead = 1_000;

/** As the manager has it: a pause runs however late, and longer than dates reach is for ever. */
const tooLate = `it.max >= 0 AND CASE WHEN it.active < interval '100000 years' AND isfinite(it.plan::timestamptz)
  THEN it.plan + it.active <= now() ELSE false END`;

const lookedAt = "t.id, t.owner, t.hash, t.state::text AS state, t.start::timestamptz AS start";

/**
 * Null when there is no such task. No index knows what runs: rows say so of those that are near, sessions
 * by their names of all.
 */
export async function readSituation(
  client: Client,
  table: TaskTable,
  id: string,
): Promise<Situation | null> {
  const { qualified, pauses } = table;
  const { rows } = await client.query<Omit<Situation, "aheadMore">>(
    `WITH it AS MATERIALIZED (
       SELECT * FROM ${qualified} WHERE id = $1::bigint LIMIT 1
     ), looked AS MATERIALIZED (
       (SELECT ${lookedAt} FROM ${qualified} AS t WHERE t.id <= $1::bigint ORDER BY t.id DESC LIMIT ${mostLooked})
       UNION ALL
       (SELECT ${lookedAt} FROM ${qualified} AS t WHERE t.id > $1::bigint ORDER BY t.id DESC LIMIT ${mostLooked})
     ), held AS MATERIALIZED (
       SELECT id, owner, hash FROM looked WHERE owner IS NOT NULL
     ), ahead AS (
       SELECT FROM it, LATERAL (
         SELECT o.max, o.id, o."group" FROM ${qualified} AS o WHERE o.ready AND o.hash = ANY (ARRAY[it.hash])
         ORDER BY o.hash, greatest(o.max, 0) DESC, o.id LIMIT ${mostAhead + 1}
       ) AS o
       WHERE (greatest(o.max, 0) > greatest(it.max, 0) OR greatest(o.max, 0) = greatest(it.max, 0) AND o.id < it.id)
         -- Another name with the same hash, which waits for its own pause.
         AND (o."group" = it."group" OR NOT EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" = o."group"))
     )
     SELECT it.id::text AS id, it.state::text AS state, it."group"::text AS "group", it.max::float8 AS max,
       ${isoTime("it.plan")} AS plan,
       CASE WHEN isfinite(it.plan::timestamptz) THEN ${milliseconds("it.plan::timestamptz - clock_timestamp()")} END AS "waitMs",
       it.ready, ${tooLate} AS "tooLate",
       ${isoTime("it.start")} AS start, ${isoTime("it.stop")} AS stop, it.pid::float8 AS pid,
       it.remote IS NOT NULL AS remote, split_part(it.error::text, E'\\n', 1) AS problem, it.owner::text AS owner,
       EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid::text = split_part(it.owner::text, ' ', 1)) AS "ownerLives",
       EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid::text = split_part(it.owner::text, ' ', 1)
         AND a.state = 'idle' AND a.state_change > it.start::timestamptz AND a.state_change < clock_timestamp() - interval '1 second')
       OR EXISTS (SELECT FROM looked AS o WHERE o.owner::text = it.owner::text AND o.state = 'WORK' AND o.start > it.start::timestamptz) AS "runEnded",
       (SELECT count(DISTINCT h.owner) FROM held AS h WHERE h.hash = it.hash)::float8 AS "groupRuns",
       ARRAY(SELECT h.id::text FROM held AS h WHERE h.hash = it.hash ORDER BY h.id LIMIT 10) AS "heldBy",
       (SELECT count(*) FROM ahead)::float8 AS ahead,
       (SELECT count(DISTINCT h.owner) FROM held AS h)::float8 AS "tableRuns"
     FROM it`,
    [id],
  );
  const [row] = rows;
  if (row === undefined) return null;
  const { running, groups } = await readSessions(client, table);
  const [name = ""] = await shownGroups(client, table, [row.group ?? ""]);
  return {
    ...row,
    groupRuns: Math.max(row.groupRuns, groups.get(name) ?? 0),
    tableRuns: Math.max(row.tableRuns, running),
    ahead: Math.min(row.ahead, mostAhead),
    aheadMore: row.ahead > mostAhead,
  };
}

/** Somebody whose open transaction holds a row. */
export interface Locker {
  readonly pid: number;
  readonly user: string | null;
  readonly name: string | null;
  /** How long its transaction has been open, in ms. */
  readonly openMs: number | null;
}

/** Who has a row locked: null when nobody has; without `by` when the server does not tell. */
export async function readRowLock(
  client: Client,
  { qualified }: TaskTable,
  id: string,
): Promise<{ readonly by: Locker | null } | null> {
  await client.query("BEGIN");
  try {
    const { rowCount: free } = await client.query(
      `SELECT FROM ${qualified} WHERE id = $1::bigint FOR NO KEY UPDATE SKIP LOCKED`,
      [id],
    );
    if (free !== 0) return null;
    const { rows } = await client.query<Locker>(
      `SELECT a.pid, a.usename AS "user", a.application_name AS name,
         ${milliseconds("clock_timestamp() - a.xact_start")} AS "openMs"
       FROM ${qualified} AS t LEFT JOIN pg_catalog.pg_locks AS l
         ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = t.xmax
       LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
       WHERE t.id = $1::bigint LIMIT 1`,
      [id],
    );
    const [row] = rows;
    if (row === undefined) return null;
    return { by: row.pid === null ? null : row };
  } finally {
    await client.query("ROLLBACK");
  }
}
