import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client, Queryable } from "../../shared/postgres/client.js";
import { busySessionName, idleSessionName } from "../../shared/postgres/applicationNames.js";
import { hasFailedTooOften } from "../../manager/schema/schedulesView.sql.js";
import { startBlockers, turnOf, type StartBlocker } from "../../manager/schema/startRule.sql.js";
import { mayServeSql } from "../../shared/postgres/ownerBackends.js";
import { isActiveSql, isoTimeSql, millisecondsSql, shareSql } from "../sqlFragments.js";
import { keyHolderQuery } from "../../manager/schema/keyIndex.js";
import { areMoreRejectedSql, isRejectedSql } from "../queries/unsettledTasks.js";
import { parseSettingNumber, readServerSettings } from "../../shared/config/serverSettings.js";
import type { Entry } from "../../shared/config/types.js";
import { reservedConnections } from "../../shared/postgres/serverLimits.js";
import { batched } from "../batched.js";
import { readCopy } from "../copies.js";
import { readPauses } from "../pauses.js";
import { managerSinceSql, readConnections, readTableLock } from "../queries/clusterProcesses.js";
import {
  countSessions,
  entriesOnServer,
  readSessionRefusal,
  readSessions,
  shownName,
  shownNames,
  type EntryLocation,
} from "../queries/executorSessions.js";
import { readTableRoles } from "../queries/roles.js";
import { readUserTriggers } from "../queries/tableFacts.js";
import { explainNotRetried, readScheduleState, retryEveryError } from "./endedTask.js";
import { mayBeLocked, readLockWait, readRowLock } from "./locks.js";

export interface SituationContext {
  readonly entry: Pick<Entry, "fixed" | "parameters" | "target">;
  /** All entries of the configuration. Those on the same server as `entry` count toward the same session limit. */
  readonly entries: readonly EntryLocation[];
  readonly maxSessions: number;
  /** Null if this cannot be determined. Called only if no manager works on the table. */
  readonly hasLeader: () => Promise<boolean | null>;
  /** On which to find out who has locked the task's row, if that is wanted: the row is locked for a moment. */
  readonly lockOn: Client | null;
  /** Whether to lock the row only if something suggests that it is locked. */
  readonly locksRarely?: boolean;
}

export type TableSituation = NonNullable<Awaited<ReturnType<typeof readSituations>>>["table"];

/** Returns null if there is no such task. */
export async function readSituations(client: Queryable, table: TaskTable, id: string, context: SituationContext) {
  const reader = batched(client);
  const { entry, entries, maxSessions, lockOn } = context;
  const [found, { manager }, { sessions, running }, { most, taken }, ...facts] = await Promise.all([
    readSituation(reader, table, id, entry.parameters["pg_task.share"]),
    readTableLock(reader, table),
    readSessions(reader, table),
    readConnections(reader),
    readPauses(reader, table),
    readCopy(reader, table, entry),
    readUserTriggers(reader, table),
    readMaxRuns(reader, entry),
    countSessions(reader, entriesOnServer(entry.target, entries)),
    readSessionRefusal(reader, table),
    readTableRoles(reader, table, id),
    mayBeLocked(reader, table, id),
    readScheduleState(reader, table, id),
    explainNotRetried(reader, table, id, entry.parameters),
  ]);
  if (found === null) return null;
  const [pauses, copy, triggers, maxRuns, all, sessionRefusal, roles, isSuspect, schedule, notRetried] = facts;
  const task = { ...found, tableRuns: Math.max(found.tableRuns, running) };
  const { state, owner, ownerLives, remote, waitMs, blockers } = task;
  const isLate = waitMs !== null && waitMs < -lateMs && blockers.length === 0;
  const locks = lockOn !== null && state === "PLAN" && (context.locksRarely !== true || isSuspect || isLate);
  const mayWait = state === "WORK" && owner !== null && ownerLives && !remote;
  return {
    task,
    table: {
      /** Its name, for statements. */
      qualified: table.qualified,
      share: entry.parameters["pg_task.share"],
      pauses,
      /** Why the table is a copy, in which nothing starts. Null if it is none. */
      copy,
      lock: locks ? await readRowLock(lockOn, table, id) : null,
      /** The lock for which the task's run waits. Null if there is none, or the task runs on another server. */
      lockWait: mayWait ? await readLockWait(reader, table, Number.parseInt(owner, 10)) : null,
      /** Why the task has failed although its `retry` allows more tries, and what to do. Null if this is not so. */
      notRetried: notRetried === null ? null : { text: notRetried, remedy: retryEveryError(table, id, schedule) },
      successor: schedule.successor,
      owed: schedule.owed,
      /** Names of the user's triggers that fire when the task is claimed (assigned to a session). */
      triggers,
      hasManager: manager !== null,
      hasLeader: manager === null ? await context.hasLeader() : true,
      /** The limits on running tasks: `pg_task.run` of the table, and `pg_conf.max`. */
      maxRuns,
      maxSessions,
      reserve: entry.parameters["pg_conf.reserve"],
      /** Number of sessions that run a task of any configured table on this server, according to pg_stat_activity. */
      runningSessions: all.running,
      openSessions: sessions,
      sessionRefusal,
      /** With users: the role that the task runs as. Null if that is the owner, or unknown. */
      role: roles?.find(({ role }) => role === task.role) ?? null,
      /** The free ones, less those that pg-task leaves to other clients. Can be negative. */
      freeConnections: most - reservedConnections - taken,
    },
  };
}

/** In ms. A task that nothing blocks starts earlier. */
const lateMs = 2_000;

/** In effect for the table's manager: of the entry, else of its role or database, else of the file. */
async function readMaxRuns(
  client: Queryable,
  { fixed, parameters }: Pick<Entry, "fixed" | "parameters">,
): Promise<number> {
  if (fixed.run !== undefined) return fixed.run;
  const text = (await readServerSettings(client, ["pg_task.run"])).get("pg_task.run");
  const value = text === undefined ? null : parseSettingNumber("pg_task.run", text);
  return value ?? parameters["pg_task.run"];
}

export interface TaskSituation {
  readonly id: string;
  readonly state: string;
  readonly group: string | null;
  readonly role: string | null;
  readonly max: number;
  readonly plan: string | null;
  /** Time until the task's planned time, in ms. Negative if the planned time has passed, null if it is infinite. */
  readonly waitMs: number | null;
  /** Why the task must not start, if it is in PLAN. */
  readonly blockers: readonly StartBlocker[];
  readonly start: string | null;
  readonly stop: string | null;
  readonly pid: number | null;
  readonly remote: boolean;
  /** First line of the task's error, cut after 1000 characters. */
  readonly problem: string | null;
  /** Whether not the task's input has failed, but the query in its rule. */
  readonly queryFailed: boolean;
  /** The backend that owns the task, as pid and start time. Null if no backend owns the task. */
  readonly owner: string | null;
  /** Whether the owner is alive, as far as this role can see. */
  readonly ownerLives: boolean;
  /** As far as this role can see: since the start, the owner was idle for a second or started another task. */
  readonly runEnded: boolean;
  /** Whether the task's run has ended and the server rejects its result, as the table's manager shows by a lock. */
  readonly rejected: boolean;
  /** The manager shows as many rejected results as it can, so this one may be rejected, too, if its run has ended. */
  readonly moreRejected: boolean;
  readonly groupRuns: number;
  /** In how many sessions the tasks of its share are, as far as the rows tell. */
  readonly shareRuns: number;
  readonly claimedOfGroup: readonly string[];
  /** Due tasks of the group that start before this one, and whether there are more than were counted. */
  readonly ahead: number;
  readonly aheadMore: boolean;
  /** As id and state, at most ten. Null if it does not wait for others. */
  readonly waitsFor: readonly string[] | null;
  readonly waitsForNumber: number;
  /** Whether it has become GONE because nothing has failed for whose failure it waited. */
  readonly needless: boolean;
  /** How many runs of its schedule have failed in a row, if it is paused because of that. */
  readonly suspendedAfter: number | null;
  readonly attempt: number;
  readonly retry: number;
  readonly keyRunsIn: string | null;
  /** Of what it is to run alone: `group` or `table`. */
  readonly alone: string | null;
  /** The turn that keeps it from starting: if it is to run alone, its own or that of another chain. */
  readonly turn: {
    readonly id: string;
    readonly group: string | null;
    readonly begun: boolean;
    readonly own: boolean;
  } | null;
  /** Claimed tasks for whose end the turn waits, at most ten. */
  readonly turnWaitsFor: readonly string[];
  readonly keyWaitsIn: string | null;
  /** According to the rows. */
  readonly tableRuns: number;
  /** 0 if it has none. */
  readonly gapMs: number;
  /**
   * When a task of the group last started, as far as the rows and the age of the manager's connection tell, and the
   * time until the gap has passed since then, in ms.
   */
  readonly lastStart: string | null;
  readonly gapLeftMs: number | null;
}

/** Rows up to the task's own, and of the newest rows, that are searched for running tasks. */
const maxScannedRows = 10_000;
const maxAhead = 1_000;

/** A line can be longer than anybody would read, and `show` prints it whole. */
const problemSql = `(SELECT CASE WHEN length(e.line) > 1000 THEN left(e.line, 1000) || '…' ELSE e.line END
  FROM split_part(it.error::text, E'\\n', 1) AS e(line))`;

const scannedColumns = "t.id, t.owner, t.hash, t.state::text AS state, t.start::timestamptz AS start";

/** No index covers running tasks: the rows before the task and the newest are scanned, and the names of sessions. */
export async function readSituation(
  client: Queryable,
  table: TaskTable,
  id: string,
  share = "",
): Promise<TaskSituation | null> {
  const { qualified, pauses, turns } = table;
  const { rows } = await client.query<Omit<TaskSituation, "aheadMore">>(
    `WITH it AS MATERIALIZED (
       SELECT * FROM ${qualified} WHERE id = $1::bigint LIMIT 1
     ), shown AS MATERIALIZED (
       ${shownNames(`ARRAY[$2 || coalesce((SELECT "group"::text FROM it), ''), $3]`)}
     ), scanned AS MATERIALIZED (
       (SELECT ${scannedColumns} FROM ${qualified} AS t WHERE t.id <= $1::bigint ORDER BY t.id DESC LIMIT ${maxScannedRows})
       UNION ALL
       (SELECT ${scannedColumns} FROM ${qualified} AS t WHERE t.id > $1::bigint ORDER BY t.id DESC LIMIT ${maxScannedRows})
     ), claimed AS MATERIALIZED (
       SELECT s.id, s.owner, s.hash, k.key, k.role, k."group" FROM scanned AS s JOIN LATERAL (SELECT t.key, t.role, t."group" FROM ${qualified} AS t WHERE t.id = s.id) AS k ON true WHERE s.owner IS NOT NULL
     ), ahead AS (
       SELECT FROM it, LATERAL (
         SELECT o.max, o.id, o."group" FROM ${qualified} AS o WHERE o.ready AND o.hash = ANY (ARRAY[it.hash])
         ORDER BY o.hash, greatest(o.max, 0) DESC, o.id LIMIT ${maxAhead + 1}
       ) AS o
       WHERE (greatest(o.max, 0) > greatest(it.max, 0) OR greatest(o.max, 0) = greatest(it.max, 0) AND o.id < it.id)
         -- Another name with the same hash, which waits for its own pause.
         AND (o."group" = it."group" OR NOT EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" = o."group"))
     )
     SELECT it.id::text AS id, it.state::text AS state, it."group"::text AS "group", it.role::text AS role, it.max::float8 AS max,
       ${isoTimeSql("it.plan")} AS plan,
       CASE WHEN isfinite(it.plan::timestamptz) THEN ${millisecondsSql("it.plan::timestamptz - clock_timestamp()")} END AS "waitMs",
       ${startBlockers(table, { running: 'l."groupRuns"', keyRuns: 'l."keyRunsIn" IS NOT NULL', quietMs: 'l."quietMs"' }, "it")} AS blockers,
       ${isoTimeSql("it.start")} AS start, ${isoTimeSql("it.stop")} AS stop, it.pid::float8 AS pid,
       it.remote IS NOT NULL AS remote, ${problemSql} AS problem,
       it.state::text = 'FAIL' AND coalesce(it.wait < 0, false) AS "queryFailed", it.owner::text AS owner,
       EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid::text = split_part(it.owner::text, ' ', 1)
         AND ${mayServeSql("a", table)}) AS "ownerLives",
       EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid::text = split_part(it.owner::text, ' ', 1)
         AND a.state = 'idle' AND a.state_change > it.start::timestamptz AND a.state_change < clock_timestamp() - interval '1 second')
       OR EXISTS (SELECT FROM scanned AS o WHERE o.owner::text = it.owner::text AND o.state = 'WORK' AND o.start > it.start::timestamptz) AS "runEnded",
       ${isRejectedSql(table, "it")} AS rejected, it.owner IS NOT NULL AND ${areMoreRejectedSql(table)} AS "moreRejected",
       l."groupRuns",
       (SELECT count(DISTINCT c.owner) FROM claimed AS c WHERE ${shareSql("c", "$4")} = ${shareSql("it", "$4")})::float8 AS "shareRuns",
       ARRAY(SELECT c.id::text FROM claimed AS c WHERE c.hash = it.hash ORDER BY c.id LIMIT 10) AS "claimedOfGroup",
       l."keyRunsIn",
       it.alone, row_to_json(u) AS turn,
       ARRAY(SELECT c.id::text FROM claimed AS c WHERE NOT u.begun AND (u."group" IS NULL OR c."group" = u."group") ORDER BY c.id LIMIT 10) AS "turnWaitsFor",
       ${keyWaitsInSql(table)} AS "keyWaitsIn",
       ${predecessorsSql(qualified)} AS "waitsFor", ${predecessorNumberSql(qualified)} AS "waitsForNumber",
       it.state::text = 'GONE' AND it.after IS NOT NULL AND coalesce(it.upon::text = 'fail', false) AND it.error IS NULL AS needless,
       CASE WHEN ${hasFailedTooOften("it")} THEN it.failures::float8 END AS "suspendedAfter", coalesce(it.attempt, 0) AS attempt, coalesce(it.retry, 0) AS retry,
       (SELECT count(*) FROM ahead)::float8 AS ahead,
       (SELECT count(DISTINCT c.owner) FROM claimed AS c)::float8 AS "tableRuns",
       coalesce(${millisecondsSql("it.gap")}, 0) AS "gapMs", ${isoTimeSql('l."lastStart"')} AS "lastStart",
       ${millisecondsSql("it.gap")} - l."quietMs" AS "gapLeftMs"
     FROM it CROSS JOIN LATERAL (
       SELECT s."groupRuns", s."keyRunsIn", s."lastStart", ${millisecondsSql('clock_timestamp() - s."lastStart"')} AS "quietMs" FROM (
         SELECT greatest((SELECT count(DISTINCT c.owner) FROM claimed AS c WHERE c.hash = it.hash), (
             SELECT count(*) FROM pg_catalog.pg_stat_activity AS a
              WHERE a.datname = current_database() AND a.application_name = ${shownName(1)} AND a.application_name <> ${shownName(2)} AND a.pid <> pg_backend_pid()))::float8 AS "groupRuns",
            (SELECT min(c.id)::text FROM claimed AS c WHERE c.key = it.key AND c.role IS NOT DISTINCT FROM it.role AND c.id <> it.id) AS "keyRunsIn",
            CASE WHEN it.gap > interval '0' THEN greatest((${managerSinceSql(table)}), (
             SELECT max(o.start) FROM scanned AS o WHERE o.hash = it.hash AND o.id <> it.id AND o.state IN ('WORK', 'DONE', 'FAIL')
           )) END AS "lastStart"
       ) AS s
     ) AS l LEFT JOIN LATERAL (
       SELECT u.turn::text AS id, u."group", u.begun, o.own FROM ${turns} AS u, LATERAL (SELECT it.alone IS NOT NULL AND u.turn = ${turnOf("it")} AS own) AS o
       WHERE o.own OR u."group" IS NULL OR it.alone = 'table' OR u."group" = it."group" ORDER BY o.own DESC, u.turn LIMIT 1
     ) AS u ON true`,
    [id, busySessionName(table, ""), idleSessionName(table), share],
  );
  const [row] = rows;
  if (row === undefined) return null;
  return { ...row, ahead: Math.min(row.ahead, maxAhead), aheadMore: row.ahead > maxAhead };
}

const keyWaitsInSql = (table: TaskTable): string =>
  `CASE WHEN it.ready IS NULL AND it.key IS NOT NULL THEN (${keyHolderQuery(table, "it.key", "it")})::text END`;

const waitsSql = "it.wait >= 0 AND it.state::text = 'PLAN'";

const activePredecessors = (qualified: string): string =>
  `FROM ${qualified} AS t WHERE t.id = ANY (it.after) AND ${isActiveSql}`;

const predecessorsSql = (qualified: string): string =>
  `CASE WHEN ${waitsSql} THEN ARRAY(SELECT concat(t.id, ' (', t.state, ')') ${activePredecessors(qualified)} ORDER BY t.id LIMIT 10) END`;

const predecessorNumberSql = (qualified: string): string =>
  `CASE WHEN ${waitsSql} THEN (SELECT count(*) ${activePredecessors(qualified)}) ELSE 0 END::float8`;
