import type { Client } from "../../shared/database.js";
import type { Run } from "../../shared/messages.js";
import type { TaskTable } from "../table.js";
import { heldBack } from "./pause.js";
import { takenAt } from "./takenAt.js";
import { tooLate } from "./tooLate.js";

/** A task that this claim gave to one of the offered sessions. */
export interface ClaimedTask extends Omit<Run, "session" | "ledger"> {
  readonly owner: string;
  readonly hash: number;
  /** Whether the session stays with the group for further tasks. */
  readonly keep: boolean;
}

export interface Claim {
  readonly claimed: readonly ClaimedTask[];
  /** How many due tasks it met that are not worth running any more. */
  readonly gone: number;
  /** Due tasks that are free to start but found no session, counted up to `lookAhead`. */
  readonly more: number;
  /** Due tasks passed over since somebody holds their row: offer them again later. */
  readonly locked: readonly string[];
}

/** A free session as a claim sees it. */
export interface FreeSession {
  readonly owner: string;
  readonly pid: number;
  /** Null when it takes any task; else it stays with one group. */
  readonly kept: KeptSession | null;
}

/** A session that runs several tasks of one group, as far as their count and live let it. */
export interface KeptSession {
  readonly hash: number;
  /** How many tasks it has run. */
  readonly ran: number;
  /** How long ago its first task started, in ms. */
  readonly ageMs: number;
}

export interface ClaimRequest {
  /** Free sessions, each of which gets at most one task. */
  readonly sessions: readonly FreeSession[];
  /** How many of each group run now, by hash. */
  readonly running: ReadonlyMap<number, number>;
  /** How many more to count beyond the sessions. */
  readonly lookAhead: number;
  /** Tasks not to look at this time. */
  readonly except: readonly string[];
}

interface ClaimRow {
  kind: "claimed" | "gone" | "more" | "locked";
  /** A number where the table's own column is an integer. */
  id: string | number;
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
  keep: boolean;
  save: boolean;
  atomic: boolean;
  take: string;
  remote: string | null;
}

/**
 * Gives due tasks to free sessions, one each: those with the larger `max` minus running in their
 * group first, then the smaller id. Of each group only as many are looked at as may start. Rows
 * that somebody has locked are passed over. A session that stays with a group gets a task of it
 * whose own count and live allow that; all others get sessions that take any task.
 *
 * Groups that are paused are left out; their first row says which they are.
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
      request.sessions.map(({ kept }) => kept?.hash ?? null),
      request.sessions.map(({ kept }) => kept?.ran ?? null),
      request.sessions.map(({ kept }) => kept?.ageMs ?? null),
    ],
  });
  const of = (kind: ClaimRow["kind"]) => rows.filter((row) => row.kind === kind);
  return {
    claimed: of("claimed").map(toTask),
    gone: of("gone").length,
    more: of("more").length,
    locked: of("locked").map((row) => String(row.id)),
  };
}

function toTask(row: ClaimRow): ClaimedTask {
  const { owner, hash, input, group, header, string, delimiter, quote, escape, keep } = row;
  return {
    id: String(row.id),
    owner,
    hash,
    input,
    group,
    timeoutMs: row.timeout_ms,
    keep,
    // A session for any task is left as new.
    save: keep && row.save,
    format: { header, string, delimiter, quote, escape, null: row.null },
    atomic: row.atomic,
    take: row.take,
    remote: row.remote,
  };
}

/** How many others of its group a task starts beside, as the index has it: a pause counts as 0. */
const beside = "greatest(max, 0)";

function claimStatement({ qualified, pauses }: TaskTable): string {
  return `
WITH RECURSIVE head AS (
  (SELECT hash, ${beside} AS max, "group" FROM ${qualified} WHERE ready ORDER BY hash, ${beside} DESC, id LIMIT 1)
  UNION ALL
  SELECT n.* FROM head AS h CROSS JOIN LATERAL (
    SELECT hash, ${beside} AS max, "group" FROM ${qualified} WHERE ready AND hash > h.hash ORDER BY hash, ${beside} DESC, id LIMIT 1
  ) AS n
), busy AS (
  SELECT * FROM unnest($3::integer[], $4::integer[]) AS b(hash, running)
), free AS (
  SELECT h.hash, coalesce(b.running, 0) AS running, h.max
  FROM head AS h LEFT JOIN busy AS b ON b.hash = h.hash
  WHERE coalesce(b.running, 0) <= h.max
    AND h."group" <> ALL (ARRAY(SELECT "group" FROM ${pauses} WHERE "group" IS NOT NULL))
    AND NOT EXISTS (SELECT FROM ${pauses} WHERE "group" IS NULL)
), candidate AS MATERIALIZED (
  SELECT c.*, f.hash, row_number() OVER (PARTITION BY c.gone ORDER BY c.priority DESC, c.id) AS place
  FROM free AS f CROSS JOIN LATERAL (
    SELECT d.*, d.max - f.running - count(*) FILTER (WHERE NOT d.gone) OVER before AS priority
    FROM (
      SELECT id, count, live, ${beside} AS max, ${tooLate} AS gone
      FROM ${qualified} WHERE ready AND hash = f.hash AND plan <= now() AND id <> ALL ($6::bigint[])
        AND id <> ALL (${heldBack})
      ORDER BY ${beside} DESC, id LIMIT least($5::bigint, f.max::bigint - f.running + 1)
    ) AS d WINDOW before AS (ORDER BY d.max DESC, d.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
  ) AS c WHERE c.gone OR c.priority >= 0
  ORDER BY c.priority DESC, c.id LIMIT $5
), session AS (
  SELECT s.*, row_number() OVER (PARTITION BY s.hash ORDER BY s.place) AS nth
  FROM unnest($1::text[], $2::integer[], $7::integer[], $8::integer[], $9::float8[])
    WITH ORDINALITY AS s(owner, pid, hash, ran, age, place)
), kept AS (
  SELECT c.id, c.place, s.owner, s.pid FROM (
    SELECT *, row_number() OVER (PARTITION BY hash ORDER BY place) AS nth FROM candidate WHERE NOT gone
  ) AS c JOIN session AS s ON s.hash = c.hash AND s.nth = c.nth
  WHERE (c.count > 0 OR c.live > interval '0') AND (c.count = 0 OR s.ran < c.count)
    AND (c.live = interval '0' OR s.age < extract(epoch FROM c.live) * 1000)
), fresh AS (
  SELECT id, place, row_number() OVER (ORDER BY place) AS nth
  FROM candidate WHERE NOT gone AND id <> ALL (ARRAY(SELECT id FROM kept))
), given AS MATERIALIZED (
  SELECT id, owner, pid FROM kept
  UNION ALL SELECT f.id, s.owner, s.pid FROM fresh AS f JOIN session AS s ON s.nth = f.nth WHERE s.hash IS NULL
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified}
  WHERE id = ANY (ARRAY(SELECT id FROM given)) AND ready AND state::text = 'PLAN' AND plan <= now()
  FOR NO KEY UPDATE SKIP LOCKED
), claimed AS (
  UPDATE ${qualified} AS t SET state = 'WORK', ready = NULL, take = now(), start = clock_timestamp(),
    stop = NULL, output = NULL, error = NULL, owner = g.owner, pid = g.pid
  FROM given AS g
  WHERE t.id = g.id AND t.id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING t.id AS claimed_id, t.owner, t.hash, t.input, t."group", least((extract(epoch FROM t.timeout) * 1000)::float8, 1e15) AS timeout_ms,
    t.header, t.string, t.delimiter::text, t.quote::text, t.escape::text, t."null",
    t.count > 0 OR t.live > interval '0' AS keep, t.save, t.remote,
    t.atomic, ${takenAt("t")} AS take
)
SELECT o.kind, o.id, c.* FROM (
  SELECT 'claimed' AS kind, claimed_id AS id FROM claimed
  UNION ALL SELECT 'gone', id FROM candidate WHERE gone
  UNION ALL SELECT 'more', id FROM fresh WHERE id <> ALL (ARRAY(SELECT id FROM given))
  UNION ALL SELECT 'locked', id FROM given WHERE id <> ALL (ARRAY(SELECT id FROM locked))
) AS o LEFT JOIN claimed AS c ON c.claimed_id = o.id`;
}
