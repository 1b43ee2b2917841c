import { DatabaseError } from "pg";
import type { Client } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { transientSqlStates } from "../../shared/postgres/transientErrors.js";
import { serverErrorClasses } from "../rejectedRows.js";
import type { TaskTable } from "../schema/taskTable.js";
import { arrayOf } from "../../shared/postgres/arrayText.js";
import { isNoneOf, isReady } from "../sql/byId.js";
import type { DueTask } from "./claimFull.sql.js";
import { assigned } from "./claimedTask.sql.js";
import { beside } from "../sql/head.js";
import { heldBack } from "../sql/pauseGroup.sql.js";

/**
 * The first due tasks of each of these groups.
 *
 * @param each how many of each at most.
 * @param except tasks not to look at this time.
 */
export async function firstDue(
  client: Client,
  { qualified }: TaskTable,
  hashes: readonly number[],
  each: number,
  except: readonly string[],
): Promise<DueTask[]> {
  const { rows } = await client.query<DueTask>({
    name: "first due",
    text: `
SELECT d.id::text AS id, d.hash, d.max FROM unnest($1::integer[]) AS g(hash) CROSS JOIN LATERAL (
  SELECT id, hash, ${beside} AS max FROM ${qualified}
  WHERE ready AND hash = ANY (ARRAY[g.hash]) AND plan <= now() AND ${isNoneOf("id", "$3")} AND id <> ALL (${heldBack})
  ORDER BY hash, ${beside} DESC, id LIMIT $2
) AS d`,
    values: [hashes, each, except],
  });
  return rows;
}

/** What came of tries. */
export interface ClaimTrial {
  /** Those that were tried, as many of the first ones as there was time for: at least one. */
  readonly tried: readonly string[];
  /** Of these, those that the server refuses, be it since a trigger of the user's has to wait for a lock. */
  readonly refused: ReadonlyMap<string, DatabaseError>;
  /** Those that could be claimed. */
  readonly free: readonly string[];
  /** Those whose row somebody has locked. The others are not due any more. */
  readonly locked: readonly string[];
}

/** Where the session has what came of it: a block of code returns nothing. */
const setting = "pgtask.tried";
/** SQLSTATE by which a try that succeeds is undone. */
const undo = "PGT00";

/**
 * Tries each of these tasks by itself whether the server lets it be claimed, and undoes that: in one
 * statement, since there may be thousands that it refuses.
 *
 * @param as whether each is to start at once, or to wait behind others, or both.
 * @param limits.forMs after so long it tries no more, in ms.
 * @param limits.lockMs how long each waits for a lock that a trigger wants, in ms.
 * @throws what is not refused for a row.
 */
export async function tryClaims(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
  as: readonly ("front" | "behind")[],
  limits: TryLimits,
): Promise<ClaimTrial> {
  await client.query(`DO ${literal(tryBlock(table, ids, as, limits))}`);
  const { rows } = await client.query<{ tried: string }>(
    `SELECT current_setting('${setting}') AS tried, set_config('${setting}', '', false)`,
  );
  const { count, done }: Outcome = JSON.parse(rows[0]?.tried ?? "");
  const of = (state: string): string[] =>
    done.flatMap((each) => (each.state === state ? each.id : []));
  const refused = done.filter(({ state }) => state !== "free" && state !== "locked");
  return {
    tried: ids.slice(0, count),
    refused: new Map(refused.map((each) => [each.id, toError(each)])),
    free: of("free"),
    locked: of("locked"),
  };
}

interface TryLimits {
  readonly forMs: number;
  readonly lockMs: number;
}

interface Outcome {
  /** How many were tried. */
  readonly count: number;
  /** Those of them that are due. */
  readonly done: readonly Tried[];
}

interface Tried {
  readonly id: string;
  /** `free`, `locked`, or the SQLSTATE of its refusal. */
  readonly state: string;
  readonly message: string | null;
}

function toError({ state, message }: Tried): DatabaseError {
  const error = new DatabaseError(message ?? "", 0, "error");
  error.severity = "ERROR";
  error.code = state;
  return error;
}

/** One try: what it comes to is in the variables. */
const block = (each: string): string => `
    BEGIN${each}
    EXCEPTION
      WHEN SQLSTATE '${undo}' THEN tries.state := coalesce(tries.state, 'free');
      WHEN OTHERS OR query_canceled OR assert_failure THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT;
        IF state ~ '${serverErrorClasses.source}' AND state <> ALL ('${arrayOf([...transientSqlStates])}') THEN RAISE; END IF;
    END;`;

/** Variables are named with their block, so that no column of the user's is taken for one. */
function tryBlock(
  table: TaskTable,
  ids: readonly string[],
  as: readonly ("front" | "behind")[],
  { forMs, lockMs }: TryLimits,
): string {
  const due = `t.id = ANY (ARRAY[tries.id]) AND ${isReady} AND t.state::text = 'PLAN' AND t.plan <= now()`;
  const tries = as.map(
    (place) => `
      PERFORM FROM ${table.qualified} AS t WHERE ${due} FOR NO KEY UPDATE SKIP LOCKED;
      IF FOUND THEN
        UPDATE ${table.qualified} AS t SET ${assigned(table, "g")}
        FROM (SELECT '0'::text AS owner, 0 AS pid, ${place === "front"} AS front) AS g
        WHERE ${due};
        IF FOUND THEN RAISE SQLSTATE '${undo}'; END IF;
      ELSIF EXISTS (SELECT FROM ${table.qualified} AS t WHERE ${due}) THEN
        state := 'locked';
      END IF;`,
  );
  return `
<<tries>>
DECLARE
  id bigint;
  state text;
  message text;
  count int := 0;
  done jsonb[] := '{}';
  until timestamptz := clock_timestamp() + interval '${forMs} ms';
BEGIN
  SET CONSTRAINTS ALL IMMEDIATE;
  PERFORM set_config('lock_timeout', '${lockMs}ms', true);
  LOCK TABLE ${table.qualified} IN ROW EXCLUSIVE MODE;
  FOREACH id IN ARRAY '{${ids.map((id) => BigInt(id)).join()}}'::bigint[] LOOP
    state := NULL;
    message := NULL;${tries.map(block).join("")}
    IF state IS NOT NULL THEN
      done := done || jsonb_build_object('id', id::text, 'state', state, 'message', message);
    END IF;
    count := count + 1;
    EXIT WHEN clock_timestamp() >= until;
  END LOOP;
  PERFORM set_config('${setting}', jsonb_build_object('count', count, 'done', done)::text, false);
END`;
}
