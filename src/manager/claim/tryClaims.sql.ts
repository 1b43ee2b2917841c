import { DatabaseError } from "pg";
import type { Client } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { characterNotInRepertoire, untranslatableCharacter } from "../../shared/postgres/sqlStates.js";
import { transientSqlStates } from "../../shared/postgres/transientErrors.js";
import { serverErrorClasses } from "../sql/rejectedRows.js";
import type { TaskTable } from "../schema/taskTable.js";
import { arrayLiteral } from "../../shared/postgres/arrayText.js";
import { assigned, claimedColumns } from "../sql/claimedTask.sql.js";
import type { DueTask } from "../model/tasks.js";
import { isReady } from "../sql/fragments.sql.js";
import { dueTasks, isLate, keyParameter, maxOthers } from "../schema/startRule.sql.js";

/** Reads the first `each` due tasks of each of these groups. */
export async function readFirstDue(
  client: Client,
  table: TaskTable,
  hashes: readonly number[],
  each: number,
  except: readonly string[],
  keys: readonly string[] = [],
): Promise<DueTask[]> {
  const { rows } = await client.query<DueTask>({
    name: "first due",
    text: `
SELECT d.id::text AS id, d.hash, d.max FROM unnest($1::integer[]) AS g(hash) CROSS JOIN LATERAL (${dueTasks(table, {
      columns: `id, hash, ${maxOthers} AS max`,
      where: "hash = ANY (ARRAY[g.hash])",
      except: "$3",
      keys: "$4",
      limit: "$2",
    })}
) AS d`,
    values: [hashes, each, except, ...keyParameter(table, keys)],
  });
  return rows;
}

/** Whether the server cannot send a text: its bytes are invalid, or the client's encoding lacks a character. */
export const isUnreadable = (error: unknown): error is DatabaseError =>
  error instanceof DatabaseError && [characterNotInRepertoire, untranslatableCharacter].includes(error.code ?? "");

/**
 * Reads the same columns of these tasks as a claim does. Late tasks and tasks with locked rows are left out.
 *
 * @throws the same error as a claim if one of the values is unreadable
 */
export async function readTexts(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
  traced: boolean,
): Promise<void> {
  await client.query({
    name: traced ? "read texts traced" : "read texts",
    text: `
SELECT ${claimedColumns(table, traced)} FROM ${table.qualified} AS t, (SELECT false AS starts_now) AS g
WHERE t.id = ANY ($1::bigint[]) AND ${isReady} AND NOT (${isLate()}) FOR NO KEY UPDATE OF t SKIP LOCKED`,
    values: [ids],
  });
}

export interface ClaimTrial {
  /** The tasks that were tried before the time was up, in the given order. At least one task is tried. */
  readonly tried: readonly string[];
  /** Tasks that the server rejects. This includes tasks for which a user's trigger ran into a lock timeout. */
  readonly rejected: ReadonlyMap<string, DatabaseError>;
  readonly free: readonly string[];
  /** Tasks with locked rows. A tried task that is not rejected, free or locked is no longer due. */
  readonly locked: readonly string[];
}

/** The setting in which the DO block stores its outcome, because a DO block cannot return anything. */
const setting = "pgtask.tried";
/** SQLSTATE that the DO block raises to roll back a successful trial. */
const undo = "PGT00";

/**
 * Finds out which of these tasks the server rejects: claims each task separately and rolls the claim back. One
 * statement does this for all of the tasks, because thousands of them may be rejected.
 *
 * @param as the forms in which each task is tried: as a current task (which starts at once) or as a queued task
 * @param limits.forMs time after which no further task is tried, in ms
 * @param limits.lockMs lock timeout of each trial, in ms
 * @throws any error that is not caused by a row
 */
export async function tryClaims(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
  as: readonly ("current" | "queued")[],
  limits: TryLimits,
): Promise<ClaimTrial> {
  await client.query(`DO ${literal(tryBlock(table, ids, as, limits))}`);
  const { rows } = await client.query<{ tried: string }>(
    `SELECT current_setting('${setting}') AS tried, set_config('${setting}', '', false)`,
  );
  const { count, done }: Outcome = JSON.parse(rows[0]?.tried ?? "");
  const of = (state: string): string[] => done.flatMap((each) => (each.state === state ? each.id : []));
  const rejected = done.filter(({ state }) => state !== "free" && state !== "locked");
  return {
    tried: ids.slice(0, count),
    rejected: new Map(rejected.map((each) => [each.id, toError(each)])),
    free: of("free"),
    locked: of("locked"),
  };
}

interface TryLimits {
  readonly forMs: number;
  readonly lockMs: number;
}

interface Outcome {
  readonly count: number;
  readonly done: readonly Tried[];
}

interface Tried {
  readonly id: string;
  /** `free`, `locked`, or the SQLSTATE with which the server rejected the task. */
  readonly state: string;
  readonly message: string | null;
}

function toError({ state, message }: Tried): DatabaseError {
  const error = new DatabaseError(message ?? "", 0, "error");
  error.severity = "ERROR";
  error.code = state;
  return error;
}

/** Returns the PL/pgSQL of one trial. It sets the variables `state` and `message`. */
const block = (each: string): string => `
    BEGIN${each}
    EXCEPTION
      WHEN SQLSTATE '${undo}' THEN tries.state := coalesce(tries.state, 'free');
      WHEN OTHERS OR query_canceled OR assert_failure THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT;
        IF state ~ '${serverErrorClasses.source}' AND state <> ALL ('${arrayLiteral([...transientSqlStates])}') THEN RAISE; END IF;
    END;`;

/** The variables are qualified with the block's label, so that they cannot clash with columns of a user's table. */
function tryBlock(
  table: TaskTable,
  ids: readonly string[],
  as: readonly ("current" | "queued")[],
  { forMs, lockMs }: TryLimits,
): string {
  const due = `t.id = ANY (ARRAY[tries.id]) AND ${isReady} AND t.state::text = 'PLAN' AND t.plan <= now()`;
  const tries = as.map(
    (form) => `
      PERFORM FROM ${table.qualified} AS t WHERE ${due} FOR NO KEY UPDATE SKIP LOCKED;
      IF FOUND THEN
        UPDATE ${table.qualified} AS t SET ${assigned(table)}
        FROM (SELECT '0'::text AS owner, 0 AS pid, ${form === "current"} AS starts_now) AS g
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
