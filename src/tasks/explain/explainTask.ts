import type { TaskTable } from "../../manager/schema/taskTable.js";
import { parseSettingNumber, readServerSettings } from "../../shared/config/serverSettings.js";
import type { Entry } from "../../shared/config/types.js";
import type { Client, Queryable } from "../../shared/postgres/client.js";
import { batched } from "../batched.js";
import { reservedConnections } from "../../shared/postgres/serverLimits.js";
import { isFinalState } from "../../shared/taskState.js";
import { readPauses } from "../commands/pauses.js";
import { readCopy } from "../queries/copy.js";
import { readConnections, readManager } from "../queries/clusterProcesses.js";
import { countSessions, entriesOnServer, readSessions, type EntryLocation } from "../queries/executorSessions.js";
import { readLockWait, type LockWait } from "./lockWait.js";
import { explainNotRetried, retryEveryError } from "./notRetried.js";
import { noSchedule, readScheduleState, type Successor } from "./scheduleState.js";
import { readRowLock, readSituation, type TaskSituation } from "./taskSituation.js";
import { readSessionRefusal } from "../queries/sessionRefusal.js";
import { readUserTriggers } from "../queries/userTriggers.js";
import type { Reason } from "./reason.js";
import { waitReasons } from "./waitReasons.js";

/**
 * Returns the reasons why a task does not run now, or null if there is no such task.
 *
 * @param context.entries all entries of the configuration. Those on the same server as `context.entry` count toward the
 * same session limit.
 * @param context.maxSessions maximum number of sessions of one pg-task process (`pg_conf.max`)
 * @param context.hasLeader returns whether any pg-task leads the cluster, or null if this cannot be determined. It is
 * called only if no manager works on the table.
 * @param context.lockOn the connection on which to find out who has locked the task's row, or null if this is not wanted.
 * To find out, the row is locked for a moment.
 * @param context.formatTime returns a time as the reasons show it. By default, they show times in ISO 8601.
 */
export async function explainTask(
  client: Queryable,
  table: TaskTable,
  id: string,
  context: {
    readonly entry: Pick<Entry, "fixed" | "parameters" | "target">;
    readonly entries: readonly EntryLocation[];
    readonly maxSessions: number;
    readonly hasLeader: () => Promise<boolean | null>;
    readonly lockOn: Client | null;
    readonly formatTime?: (iso: string) => string;
  },
): Promise<Reason[] | null> {
  const reader = batched(client);
  const { entry, entries, maxSessions, lockOn, formatTime = (iso: string): string => iso } = context;
  const [found, manager, { sessions, running }, { most, taken }, ...facts] = await Promise.all([
    readSituation(reader, table, id),
    readManager(reader, table),
    readSessions(reader, table),
    readConnections(reader),
    readPauses(reader, table),
    readCopy(reader, table, entry),
    readUserTriggers(reader, table),
    readMaxRuns(reader, entry),
    countSessions(reader, entriesOnServer(entry.target, entries)),
    readSessionRefusal(reader, table),
  ]);
  if (found === null) return null;
  const [pauses, copy, triggers, maxRuns, all, sessionRefusal] = facts;
  const situation = { ...found, tableRuns: Math.max(found.tableRuns, running) };
  const schedule = hasEnded(situation) ? await readScheduleState(reader, table, id) : noSchedule;
  const notRetried = situation.state === "FAIL" ? await explainNotRetried(reader, table, id, entry.parameters) : null;
  return waitReasons(withTimes(situation, formatTime), {
    pauses: pauses.map((pause) => ({ ...pause, since: formatTime(pause.since) })),
    copy,
    lock: lockOn !== null && situation.state === "PLAN" ? await readRowLock(lockOn, table, id) : null,
    lockWait: withBlockersTimes(await readOwnersLockWait(reader, situation), formatTime),
    notRetried: notRetried === null ? null : { text: notRetried, remedy: retryEveryError(table, id, schedule) },
    successor: withPlan(schedule.successor, formatTime),
    owed: schedule.owed,
    triggers,
    hasManager: manager !== null,
    hasLeader: manager === null ? await context.hasLeader() : true,
    maxRuns,
    maxSessions,
    reserve: entry.parameters["pg_conf.reserve"],
    runningSessions: all.running,
    openSessions: sessions,
    sessionRefusal,
    freeConnections: most - reservedConnections - taken,
  });
}

const hasEnded = ({ state, owner }: TaskSituation): boolean => isFinalState(state) && owner === null;

const withPlan = (successor: Successor | null, formatTime: (iso: string) => string): Successor | null =>
  successor === null || successor.plan === "infinity" ? successor : { ...successor, plan: formatTime(successor.plan) };

/** Returns the lock for which the task's run waits. Null if there is none, or the task runs on another server. */
async function readOwnersLockWait(
  client: Queryable,
  { state, owner, ownerLives, remote }: TaskSituation,
): Promise<LockWait | null> {
  if (state !== "WORK" || owner === null || !ownerLives || remote) return null;
  return await readLockWait(client, Number.parseInt(owner, 10));
}

const withBlockersTimes = (wait: LockWait | null, formatTime: (iso: string) => string): LockWait | null =>
  wait && {
    ...wait,
    blockers: wait.blockers.map((each) => ({ ...each, since: each.since === null ? null : formatTime(each.since) })),
  };

/** Returns the situation with its times formatted. The reasons show them and compute nothing from them. */
function withTimes(situation: TaskSituation, formatTime: (iso: string) => string): TaskSituation {
  const { plan, start, stop, lastStart } = situation;
  const format = (time: string | null): string | null => (time === null ? null : formatTime(time));
  return { ...situation, plan: format(plan), start: format(start), stop: format(stop), lastStart: format(lastStart) };
}

/**
 * Returns the value of `pg_task.run` that is in effect for the table's manager. It comes from the entry if it is set
 * there, or else from the entry's role or database, or else from the configuration file.
 */
async function readMaxRuns(
  client: Queryable,
  { fixed, parameters }: Pick<Entry, "fixed" | "parameters">,
): Promise<number> {
  if (fixed.run !== undefined) return fixed.run;
  const text = (await readServerSettings(client, ["pg_task.run"])).get("pg_task.run");
  const value = text === undefined ? null : parseSettingNumber("pg_task.run", text);
  return value ?? parameters["pg_task.run"];
}
