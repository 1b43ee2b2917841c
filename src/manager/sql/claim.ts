import type { Client } from "../../shared/database.js";
import type { Run } from "../../shared/messages.js";
import type { TaskTable } from "../table.js";
import { inactive } from "./inactive.js";

/** A task that this claim gave to one of the offered sessions. */
export interface ClaimedTask extends Omit<Run, "session"> {
  readonly owner: string;
  readonly hash: number;
}

export interface Claim {
  readonly claimed: readonly ClaimedTask[];
  /** How many tasks ended as GONE, since they could not start while they were active. */
  readonly gone: number;
  /** Due tasks that are free to start but found no session, counted up to `lookAhead`. */
  readonly more: number;
  /** Due tasks passed over since somebody holds their row: offer them again later. */
  readonly locked: readonly string[];
}

export interface ClaimRequest {
  /** Free sessions, each of which gets at most one task. */
  readonly sessions: readonly { readonly owner: string; readonly pid: number }[];
  /** How many of each group run now, by hash. */
  readonly running: ReadonlyMap<number, number>;
  /** How many more to count beyond the sessions. */
  readonly lookAhead: number;
  /** Tasks not to look at this time. */
  readonly except: readonly string[];
}

interface ClaimRow {
  kind: "claimed" | "gone" | "more" | "locked";
  id: string;
  owner: string;
  hash: number;
  input: string;
  group: string;
  timeout_ms: number;
  header: boolean;
  string: boolean;
  delimiter: string;
  quote: string;
  escape: string;
  null: string;
}

/**
 * Gives due tasks to free sessions, one each: those with the larger `max` minus running in their
 * group first, then the smaller id. Of each group only as many are looked at as may start. Rows
 * that somebody has locked are passed over.
 *
 * The recursion visits each group's first row by the index, so its cost grows with the number of
 * groups that have something due, not with the number of tasks.
 */
export async function claim(
  client: Client,
  table: TaskTable,
  request: ClaimRequest,
): Promise<Claim> {
  const { rows } = await client.query<ClaimRow>({
    name: "claim",
    text: claimStatement(table),
    values: [
      request.sessions.map((session) => session.owner),
      request.sessions.map((session) => session.pid),
      [...request.running.keys()],
      [...request.running.values()],
      request.sessions.length + request.lookAhead,
      request.except,
    ],
  });
  const of = (kind: ClaimRow["kind"]) => rows.filter((row) => row.kind === kind);
  return {
    claimed: of("claimed").map(toTask),
    gone: of("gone").length,
    more: of("more").length,
    locked: of("locked").map((row) => row.id),
  };
}

function toTask(row: ClaimRow): ClaimedTask {
  const { id, owner, hash, input, group, header, string, delimiter, quote, escape } = row;
  return {
    id,
    owner,
    hash,
    input,
    group,
    timeoutMs: row.timeout_ms,
    save: false,
    format: { header, string, delimiter, quote, escape, null: row.null },
  };
}

/** How many others of its group a task starts beside, as the index has it: a pause counts as 0. */
const beside = "greatest(max, 0)";

function claimStatement({ qualified }: TaskTable): string {
  return `
WITH RECURSIVE head AS (
  (SELECT hash, ${beside} AS max FROM ${qualified} WHERE ready ORDER BY hash, ${beside} DESC, id LIMIT 1)
  UNION ALL
  SELECT n.hash, n.max FROM head AS h CROSS JOIN LATERAL (
    SELECT hash, ${beside} AS max FROM ${qualified} WHERE ready AND hash > h.hash ORDER BY hash, ${beside} DESC, id LIMIT 1
  ) AS n
), busy AS (
  SELECT * FROM unnest($3::integer[], $4::integer[]) AS b(hash, running)
), free AS (
  SELECT h.hash, coalesce(b.running, 0) AS running, h.max
  FROM head AS h LEFT JOIN busy AS b ON b.hash = h.hash
  WHERE coalesce(b.running, 0) <= h.max
), candidate AS MATERIALIZED (
  SELECT c.id, c.gone, c.priority, row_number() OVER (PARTITION BY c.gone ORDER BY c.priority DESC, c.id) AS place
  FROM free AS f CROSS JOIN LATERAL (
    SELECT d.id, d.gone, d.max - f.running - count(*) FILTER (WHERE NOT d.gone) OVER before AS priority
    FROM (
      SELECT id, ${beside} AS max, max >= 0 AND ${inactive} AS gone
      FROM ${qualified} WHERE ready AND hash = f.hash AND plan <= now() AND id <> ALL ($6::bigint[])
      ORDER BY ${beside} DESC, id LIMIT least($5::bigint, f.max::bigint - f.running + 1)
    ) AS d WINDOW before AS (ORDER BY d.max DESC, d.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
  ) AS c WHERE c.gone OR c.priority >= 0
  ORDER BY c.priority DESC, c.id LIMIT $5
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified}
  WHERE id = ANY (ARRAY(SELECT id FROM candidate WHERE gone OR place <= cardinality($1::text[])))
    AND ready AND state::text = 'PLAN' AND plan <= now()
  FOR NO KEY UPDATE SKIP LOCKED
), gone AS (
  UPDATE ${qualified} SET state = 'GONE', ready = NULL, start = now(), stop = now(), error = 'ERROR:  task not active'
  WHERE id = ANY (ARRAY(SELECT l.id FROM locked AS l JOIN candidate AS c ON c.id = l.id WHERE c.gone))
  RETURNING id
), chosen AS (
  SELECT l.id, row_number() OVER (ORDER BY c.place) AS place
  FROM locked AS l JOIN candidate AS c ON c.id = l.id WHERE NOT c.gone
), claimed AS (
  UPDATE ${qualified} AS t SET state = 'WORK', ready = NULL, take = now(), start = clock_timestamp(),
    stop = NULL, output = NULL, error = NULL, owner = s.owner, pid = s.pid
  FROM chosen AS c JOIN unnest($1::text[], $2::integer[]) WITH ORDINALITY AS s(owner, pid, place) ON s.place = c.place
  WHERE t.id = c.id AND t.id = ANY (ARRAY(SELECT id FROM chosen))
  RETURNING t.id, t.owner, t.hash, t.input, t."group", (extract(epoch FROM t.timeout) * 1000)::float8 AS timeout_ms,
    t.header, t.string, t.delimiter::text, t.quote::text, t.escape::text, t."null"
)
SELECT 'claimed' AS kind, * FROM claimed
UNION ALL SELECT 'gone', id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM gone
UNION ALL SELECT 'more', id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM candidate WHERE NOT gone AND place > cardinality($1::text[])
UNION ALL SELECT 'locked', id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM candidate WHERE (gone OR place <= cardinality($1::text[])) AND id <> ALL (ARRAY(SELECT id FROM locked))`;
}
