import { shiftOf } from "./jitter.sql.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { finalStates, type TaskState } from "../../shared/taskState.js";
import { keyHolderQuery } from "./keyIndex.js";
import { hasSchedule, isOwing, repetitions } from "./schedulesView.sql.js";
import type { TaskTable } from "./taskTable.js";

export type Change =
  | "stop"
  | "retry"
  | "retry-without-waiting"
  | "run-now"
  | "run-without-waiting"
  | "pause"
  | "resume"
  | "delete"
  | "delete even running";

export interface ChangeResult {
  readonly id: string;
  /**
   * Whether the task's state does not allow it (`refused`), another transaction has locked the row, or the server has
   * reported an error (`failed`).
   */
  readonly outcome: "changed" | "refused" | "missing" | "locked" | "failed";
  readonly state: TaskState | null;
  readonly attempt: number;
  readonly claimed: boolean;
  /** For a retried task, whether its schedule was cleared because the schedule continues in another row. */
  readonly unlinked: boolean;
  /** It goes on (`started`), no longer does, or its pause is over. Null if it is as before, and for pauses. */
  readonly schedule: "started" | "ended" | "resumed" | null;
  /** For a finished task, the id of another task that waits with its key. */
  readonly keyWaitsIn: string | null;
  /** The server's error if the outcome is `failed`, or why the task's state allows the change but something else does not. */
  readonly reason: string | null;
}

type States = readonly TaskState[] | null;

const endedSql = `state OPERATOR(pg_catalog.=) ANY (ARRAY[${finalStates.map(literal).join(", ")}])`;
const runningSql = "state OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK'])";
const waitingSql = "state OPERATOR(pg_catalog.=) 'PLAN'";

/**
 * The condition that a row of `found`, which has the given tasks except those in locked rows, must meet. It is
 * evaluated while the row is locked.
 */
const allowedRows: Readonly<Record<Change, string>> = {
  stop: `${waitingSql} OR ${runningSql} OR owing`,
  retry: `${endedSql} AND NOT excluded AND NOT claimed AND key_waits_in IS NULL`,
  "retry-without-waiting": `${endedSql} AND NOT claimed AND key_waits_in IS NULL`,
  "run-now": `${waitingSql} AND NOT claimed AND NOT waits`,
  "run-without-waiting": `${waitingSql} AND NOT claimed AND waits`,
  pause: `${waitingSql} AND NOT claimed AND repeats AND NOT computes AND NOT halted AND NOT waits`,
  resume: `${waitingSql} AND NOT claimed AND repeats AND halted AND NOT waits AND resumes_at IS NOT NULL`,
  delete: `NOT claimed AND NOT (${runningSql})`,
  "delete even running": "true",
};

export const keyTaken = "another task with the same key waits";

/** Why a row of `found` may not be changed although its state allows it. Null if only its state prevents it. */
const refusals: Readonly<Partial<Record<Change, string>>> = {
  pause: `CASE WHEN NOT f.repeats THEN 'not a schedule' WHEN f.${runningSql} OR f.claimed
      THEN 'running: pause its group, or pause it when the run has ended'
    WHEN f.owing THEN 'its next run could not be planned yet: stop it to end the schedule'
    WHEN NOT f.${waitingSql} THEN pg_catalog.concat('is ', f.state, ': pause the task of its next run, if there is one')
    WHEN f.waits THEN 'it waits for other tasks: pause its group, or pause it when these have ended'
    WHEN f.halted THEN 'already paused' ELSE 'its next time is being computed: try again' END`,
  retry: `CASE WHEN f.excluded AND f.${endedSql}
      THEN pg_catalog.concat('is ', f.state, ', which is none of the given states')
    WHEN f.key_waits_in IS NOT NULL THEN ${literal(keyTaken)} END`,
  "retry-without-waiting": `CASE WHEN f.key_waits_in IS NOT NULL THEN ${literal(keyTaken)} END`,
  "run-without-waiting": `CASE WHEN f.${waitingSql} AND NOT f.waits THEN 'it does not wait for others' END`,
  "run-now": "CASE WHEN f.waits THEN 'it waits for other tasks: set its after to null, or end these' END",
  resume: `CASE WHEN NOT f.repeats THEN 'not a schedule' WHEN NOT f.${waitingSql} OR NOT f.halted THEN 'not paused'
    WHEN f.waits THEN 'not paused: it waits for other tasks'
    WHEN f.attempt OPERATOR(pg_catalog.>) 0 THEN 'its rule has no further times; run-now makes its waiting retry'
    ELSE 'its rule has no further times' END`,
};

/** Its first time after now; of a query, the time that it has returned last, or now if it has returned none yet. */
function resumeTime({ schema }: TaskTable): string {
  const calendar = identifier(schema);
  const now = "pg_catalog.statement_timestamp()";
  return `CASE WHEN t.rule IS NULL AND t.due OPERATOR(pg_catalog.>) ${now} THEN t.due WHEN t.rule IS NULL THEN (SELECT coalesce((${repetitions(now, 1)})[1], ${now} OPERATOR(pg_catalog.+) s.repeat)
      FROM (SELECT t.repeat, t.drift, t.due AS base) AS s)
    WHEN ${calendar}.task_rule_kind(t.rule) OPERATOR(pg_catalog.<>) 'query' THEN ${calendar}.task_next(t.rule, t.zone, ${now} OPERATOR(pg_catalog.-) ${shiftOf("t")}) OPERATOR(pg_catalog.+) ${shiftOf("t")}
    WHEN t.wait OPERATOR(pg_catalog.<) 0 THEN ${now} ELSE coalesce(t.due, ${now}) END`;
}

const isExcluded = (states: States): string =>
  states === null
    ? "false"
    : `(t.state::pg_catalog.text OPERATOR(pg_catalog.<>) ALL (ARRAY[${states.map(literal).join(", ")}]::pg_catalog.text[]))`;

/** Those that a waiting task with the same key can prevent. */
export const keyChanges: ReadonlySet<Change> = new Set([
  "retry",
  "retry-without-waiting",
  "run-now",
  "run-without-waiting",
]);

/** Null for the changes that this does not prevent. */
function keyWaitsIn(table: TaskTable, change: Change, { states = null, keysOfRoles }: ForKeys): string {
  if (!keyChanges.has(change)) return "NULL::bigint";
  return `CASE WHEN t.ready IS NULL AND t.key IS NOT NULL AND NOT ${isExcluded(states)} THEN (${keyHolderQuery(table, "t.key", keysOfRoles === true ? "t" : null)}) END`;
}

const goesOn = "CASE WHEN f.repeats AND NOT c.unlinked THEN 'started' END";

/** A finished row has passed its schedule on, or the schedule has ended. */
const scheduleEffects: Readonly<Partial<Record<Change, string>>> = {
  stop: "CASE WHEN f.repeats THEN 'ended' END",
  retry: goesOn,
  "retry-without-waiting": goesOn,
  "run-now": "CASE WHEN f.repeats AND f.halted THEN 'resumed' END",
  delete: `CASE WHEN f.repeats AND (f.${waitingSql} OR f.owing) THEN 'ended' END`,
  "delete even running": `CASE WHEN f.repeats AND (f.${waitingSql} OR f.${runningSql} OR f.owing) THEN 'ended' END`,
};

function foundColumns(table: TaskTable, change: Change, keys: ForKeys): string {
  const { states = null } = keys;
  return `${hasSchedule("t")} AS repeats, t.plan OPERATOR(pg_catalog.=) 'infinity' AS halted,
    ${isOwing("t")} AS owing, ${isExcluded(states)} AS excluded, coalesce(t.wait OPERATOR(pg_catalog.<) 0, false) AS computes, coalesce(t.attempt, 0) AS attempt,
    coalesce(t.wait OPERATOR(pg_catalog.>=) 0, false) AS waits, ${keyWaitsIn(table, change, keys)} AS key_waits_in,
    ${change === "resume" ? `CASE WHEN t.plan OPERATOR(pg_catalog.=) 'infinity' AND ${hasSchedule("t")} THEN ${resumeTime(table)} END` : "NULL::pg_catalog.timestamptz"} AS resumes_at`;
}

/**
 * If such a task were retried with its schedule, a second series of repetitions would start. A successor with `overlap`
 * has passed its schedule on when it started.
 */
const hasSuccessor = (qualified: string): string => `t.id OPERATOR(pg_catalog.=) ANY (ARRAY(
  SELECT c.parent FROM ${qualified} AS c WHERE EXISTS (SELECT FROM found WHERE repeats)
    AND c.parent OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT id FROM found WHERE repeats)) AND (${hasSchedule("c")} OR c.overlap IS TRUE)))`;

/**
 * What a schedule loses that is resumed while it waits for its next try. The time of this try has passed during the
 * pause, so the row begins the run of another time, with all its tries and without results, as a successor.
 */
const droppedTry = [
  ...["attempt", "crash"].map(
    (name) => `${name} = CASE WHEN f.attempt OPERATOR(pg_catalog.>) 0 THEN 0 ELSE t.${name} END`,
  ),
  ...["take", "start", "stop", "pid", "output", "error", "errors"].map(
    (name) => `${name} = CASE WHEN f.attempt OPERATOR(pg_catalog.>) 0 THEN NULL ELSE t.${name} END`,
  ),
].join(", ");

function changeSql(change: Change, { qualified }: TaskTable): string {
  const rows = `t.id OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT id FROM found WHERE ${allowedRows[change]}))`;
  const returning = "RETURNING t.id, false AS unlinked";
  switch (change) {
    case "stop":
      return `UPDATE ${qualified} AS t SET state = 'STOP' WHERE ${rows} ${returning}`;
    // It starts at the time for which it was planned.
    case "run-without-waiting":
      return `UPDATE ${qualified} AS t SET after = NULL, upon = NULL WHERE ${rows} ${returning}`;
    case "run-now":
      return `UPDATE ${qualified} AS t SET plan = pg_catalog.statement_timestamp() WHERE ${rows} ${returning}`;
    case "pause":
      return `UPDATE ${qualified} AS t SET plan = 'infinity', due = coalesce(t.due, t.plan) WHERE ${rows} ${returning}`;
    case "resume":
      // If the rule is a query that has not run yet, `due` stays, because it is the time of the last run.
      return `UPDATE ${qualified} AS t SET plan = f.resumes_at, due = CASE WHEN t.wait OPERATOR(pg_catalog.<) 0 THEN t.due END, failures = NULL, ${droppedTry}
        FROM found AS f WHERE f.id OPERATOR(pg_catalog.=) t.id AND ${rows} ${returning}`;
    case "retry":
    case "retry-without-waiting": {
      const repeated = hasSuccessor(qualified);
      const cleared = ["repeat", "rule", "zone"].map(
        (name) =>
          `${name} = CASE WHEN ${repeated} THEN ${name === "repeat" ? "interval '0'" : "NULL"} ELSE t.${name} END`,
      );
      // All tries are made again. If the row has a schedule, `due` is the time from which it goes on.
      const due = `CASE WHEN ${hasSchedule("t")} AND NOT ${repeated} THEN t.due END`;
      return `UPDATE ${qualified} AS t SET state = 'PLAN', plan = pg_catalog.statement_timestamp(), crash = 0, attempt = 0, due = ${due}, errors = NULL, ${cleared.join(", ")},
        take = NULL, start = NULL, stop = NULL, pid = NULL, output = NULL, error = NULL${change === "retry" ? "" : ", after = NULL, upon = NULL"}
        WHERE ${rows} RETURNING t.id, NOT ${hasSchedule("t")} AND EXISTS (SELECT FROM found AS f WHERE f.id OPERATOR(pg_catalog.=) t.id AND f.repeats) AS unlinked`;
    }
    case "delete":
    case "delete even running":
      return `DELETE FROM ${qualified} AS t WHERE ${rows} ${returning}`;
    default:
      return change satisfies never;
  }
}

interface Statement {
  /** SQL of an array of ids. */
  readonly ids: string;
  /** The states to which a retry is limited. */
  readonly states?: States;
  /** Whether it waits for locked rows, instead of leaving them as they are. */
  readonly waits?: boolean;
  /** What follows its list of columns. */
  readonly into?: string;
  /** Whether each role has keys of its own, because the table has users. */
  readonly keysOfRoles?: boolean;
}

type ForKeys = Pick<Statement, "states" | "keysOfRoles">;

/** SQL of a statement that makes a change, and returns a `ChangeResult` for each id. */
export function changeStatement(
  table: TaskTable,
  change: Change,
  { ids, states = null, waits = false, into = "", keysOfRoles = table.usersOwner !== null }: Statement,
): string {
  const { qualified } = table;
  return `WITH asked AS (
       SELECT id, pg_catalog.min(place) AS place FROM pg_catalog.unnest(${ids}) WITH ORDINALITY AS a(id, place) GROUP BY id
     ), found AS MATERIALIZED (
       SELECT t.id, t.state::pg_catalog.text AS state, t.owner IS NOT NULL AS claimed, ${foundColumns(table, change, { states, keysOfRoles })}
       FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) ANY (${ids}) FOR UPDATE${waits ? "" : " SKIP LOCKED"}
     ), changed AS (${changeSql(change, table)})
     SELECT a.id::pg_catalog.text AS id, coalesce(f.state, t.state::pg_catalog.text) AS state,
       coalesce(f.attempt, 0)::pg_catalog.float8 AS attempt, coalesce(f.claimed, t.owner IS NOT NULL) AS claimed,
       coalesce(c.unlinked, false) AS unlinked, f.key_waits_in::pg_catalog.text AS "keyWaitsIn",
       CASE WHEN c.id IS NOT NULL THEN ${scheduleEffects[change] ?? "NULL::pg_catalog.text"} END AS schedule,
       CASE WHEN c.id IS NOT NULL THEN 'changed' WHEN f.id IS NOT NULL THEN 'refused'
         WHEN t.id IS NOT NULL THEN 'locked' ELSE 'missing' END AS outcome,
       CASE WHEN c.id IS NULL AND f.id IS NOT NULL THEN ${refusals[change] ?? "NULL::pg_catalog.text"} END AS reason${into}
     FROM asked AS a LEFT JOIN found AS f ON f.id OPERATOR(pg_catalog.=) a.id LEFT JOIN changed AS c ON c.id OPERATOR(pg_catalog.=) a.id
     LEFT JOIN ${qualified} AS t ON t.id OPERATOR(pg_catalog.=) a.id ORDER BY a.place`;
}
