import { runInstead, stopAndRetry, webRemedies } from "../commands/describeChange.js";
import { errorDefinitions } from "../../shared/errorCodes.js";
import { refusalRemedy, type SessionRefusal } from "../queries/executorSessions.js";
import { describeLockWait, describeUnblocking, type Blocker, type LockWait } from "./locks.js";
import { describeCopy } from "../../manager/schema/home.js";
import { type StartBlocker, noTimeError } from "../../manager/schema/startRule.sql.js";
import { reservedSessions } from "../../shared/reservedSessions.js";
import { shareOf } from "../../shared/shareOf.js";
import { finalStates } from "../../shared/taskState.js";
import { owedRemedy, type Successor } from "./endedTask.js";

import type { Queryable } from "../../shared/postgres/client.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { blockerReason, type PageRemedy, type Reason } from "./reason.js";
import { readSituations, type SituationContext, type TableSituation, type TaskSituation } from "./taskSituation.js";

/**
 * @param context.formatTime returns a time as the reasons show it, by default in ISO 8601
 * @returns null if there is no such task
 */
export async function explainTask(
  client: Queryable,
  table: TaskTable,
  id: string,
  context: SituationContext & { readonly formatTime?: (iso: string) => string },
): Promise<Reason[] | null> {
  const found = await readSituations(client, table, id, context);
  if (found === null) return null;
  const shown = context.formatTime === undefined ? found : withTimes(found, context.formatTime);
  return waitReasons(shown.task, shown.table);
}

const timeNames: ReadonlySet<string> = new Set(["plan", "start", "stop", "lastStart", "since"]);

/** The reasons show times and compute nothing from them. */
const withTimes = <T>(found: T, formatTime: (iso: string) => string): T =>
  JSON.parse(JSON.stringify(found), (name, value: unknown) =>
    timeNames.has(name) && typeof value === "string" && value !== "infinity" ? formatTime(value) : value,
  );

/** Most important first. A task that is running or has ended has exactly one reason. */
function waitReasons(task: TaskSituation, table: TableSituation): Reason[] {
  if (task.rejected) return [rejectedReason(task, table)];
  if (finalStates.some((state) => state === task.state)) return [endedReason(task, table)];
  if (task.owner !== null)
    return [withRejected(task, table.lockWait === null ? claimedReason(task) : lockReason(task, table.lockWait))];
  if (task.state !== "PLAN")
    return [
      {
        ...reason("orphaned", `it is in ${task.state}, but no session owns it`, `${stopAndRetry([task.id])} runs it`),
        page: { hint: "Stop it, then retry it." },
      },
    ];
  const blocked = (isMeant: (code: StartBlocker) => boolean): Reason[] =>
    task.blockers.filter(isMeant).map((code) => blockerReason(code, task, table));
  const reasons = [
    ...blocked((code) => !isInQueue(code) && code !== "out-of-queue"),
    ...copyReasons(table),
    ...managerReasons(table),
    ...blocked((code) => code === "out-of-queue"),
    ...rowLockReasons(table),
    ...blocked((code) => isInQueue(code) && code !== "gap"),
    ...(isDue(task) ? aheadReasons(task) : []),
    ...blocked((code) => code === "gap"),
    ...(task.remote ? [] : roleReasons(task, table)),
    ...(isDue(task) ? limitReasons(task, table) : []),
  ];
  if (reasons.length > 0) return reasons;
  if (table.sessionRefusal !== null) return [refusedReason(table.sessionRefusal)];
  const isOverdue = task.waitMs !== null && task.waitMs < -sessionMs;
  const lacksSession = table.openSessions === 0 && table.triggers.length === 0;
  return [lacksSession && isOverdue ? noSessionReason : dueReason(table)];
}

const reason = (code: Reason["code"], text: string, remedy?: string, tasks: readonly string[] = []): Reason => ({
  code,
  text,
  ...(remedy === undefined ? {} : { remedy }),
  ...(tasks.length === 0 ? {} : { tasks }),
});

/** Whether the reason is one that only a due task has. */
const isInQueue = (code: StartBlocker): boolean =>
  code === "key-runs" || code === "turn" || code === "group-limit" || code === "gap";

const isDue = ({ waitMs }: TaskSituation): boolean => waitMs !== null && waitMs <= 0;

/** How long a manager may take to open the first session of a table, in ms. */
const sessionMs = 2_000;

const refusedReason = (refusal: SessionRefusal): Reason =>
  reason(
    "no-session",
    `nothing in the table blocks it, but no session is free for it, and the server refuses new ones: ${refusal.reason}`,
    refusalRemedy(refusal),
  );

const noSessionReason = reason(
  "no-session",
  "nothing in the table blocks it, but no session of the table is open to run it",
  'pg-task opens one when a task is due; if it cannot, its log says why ("cannot open a session, tasks wait"): for example, the password of the role was changed on the server',
);

function dueReason({ triggers }: TableSituation): Reason {
  const check = "it starts at the manager's next check";
  if (triggers.length === 0) return reason("due", `nothing blocks it: ${check}`);
  return reason(
    "due",
    `neither rows nor sessions show anything that blocks it: ${check}, unless one of your triggers on the table (${triggers.join(", ")}) suppresses the update of its row`,
    'an error raised by a trigger is in pg-task\'s log ("claim rejected by the server, retrying"); a trigger that returns NULL leaves no trace',
  );
}

/** The predecessor because of whose end the task is GONE. */
const failedPredecessor = ({ state, problem, keyWaitsIn }: TaskSituation): string | null =>
  state !== "GONE" || keyWaitsIn !== null
    ? null
    : (/^ERROR: {2}task (\d+), which it waits for,/.exec(problem ?? "")?.[1] ?? null);

function goneText({ stop, problem, needless }: TaskSituation): string {
  const since = stop ?? "an unknown time";
  if (needless)
    return `it is GONE since ${since}: all that it waited for ended without failure, and it was only for one`;
  if (problem === null || problem === "ERROR:  task not active") {
    return `it expired${stop === null ? "" : ` at ${stop}`}: it was late by more than active allows`;
  }
  const end = problem === noTimeError ? "; its schedule has ended" : "";
  return `it is GONE since ${since}: ${problem}${end}`;
}

function endedReason(task: TaskSituation, { notRetried, successor, owed, role }: TableSituation): Reason {
  const { id, state, owner, queryFailed, keyWaitsIn } = task;
  if (owner !== null) return reason("stopping", `it was set to ${state} while it ran, and its run is ending`);
  const text = endText(task, notRetried);
  if (owed !== null) {
    const why = `its next run has been owed since then, because it could not be planned: ${owed}`;
    return {
      ...reason("ended", `${text}; ${why}`, owedRemedy(id)),
      page: { hint: "Change what refuses it, and it is planned within a minute. Retry runs the task now." },
    };
  }
  const predecessor = failedPredecessor(task);
  const first = role === null || role.problem === null ? "" : correctRole(role.role, role.problem);
  const again = `${first}pg-task retry ${id} runs ${queryFailed ? "the query" : "it"} again`;
  const told = reason(
    "ended",
    `${text}${successor === null ? "" : `; ${successorText(successor)}`}`,
    keyWaitsIn === null
      ? [again, ...(notRetried === null ? [] : [notRetried.remedy])].join("; ")
      : runInstead(keyWaitsIn),
    [successor?.id, keyWaitsIn, predecessor].flatMap((each) => each ?? []),
  );
  // The page has a button that retries the task.
  const hint =
    keyWaitsIn === null
      ? (notRetried?.remedy ?? (first === "" ? "" : `${first}retry it`))
      : webRemedies.keyWaits(keyWaitsIn);
  const ended: Reason = { ...told, page: hint === "" ? {} : { hint } };
  return predecessor === null ? ended : { ...ended, action: { name: "retry-without-waiting" } };
}

const correctRole = (role: string, problem: string): string =>
  `first correct what keeps tasks of role ${role} from running (${problem}); then `;

function endText(task: TaskSituation, notRetried: TableSituation["notRetried"]): string {
  const { state, stop, problem, queryFailed } = task;
  const when = stop === null ? "" : ` at ${stop}`;
  const texts: Readonly<Record<string, string>> = {
    DONE: `it ran without error and ended${when}`,
    FAIL: `${queryFailed ? "the query in its rule" : "it"} failed${when}${problem === null ? "" : `: ${problem}`}${notRetried === null ? "" : `; ${notRetried.text}`}${queryFailed ? "; its schedule has ended" : ""}`,
    GONE: goneText(task),
    STOP: "it was stopped",
  };
  return texts[state] ?? state;
}

function successorText({ id, state, plan }: Successor): string {
  if (state !== "PLAN") return `the next run of its schedule is task ${id}, which runs now`;
  return plan === "infinity"
    ? `its schedule is paused in task ${id}`
    : `the next run of its schedule is task ${id}, planned for ${plan}`;
}

function rejectedReason({ id, start }: TaskSituation, { triggers }: TableSituation): Reason {
  const names = triggers.length === 0 ? "" : `, perhaps ${triggers.join(", ")}`;
  return reason(
    "rejected",
    `it started at ${start ?? "an unknown time"}, its run has ended, and the server rejects its result: a trigger or constraint of yours refuses the change of its row${names}`,
    `the log line "result rejected by the server, retrying" with the id ${id} says why; once you have changed the trigger or constraint, the manager writes the result, which it keeps, within a minute`,
  );
}

/** The manager may not show all rejected results. The remedy for a result that is not written yet says so anyway. */
function withRejected({ id, state, moreRejected }: TaskSituation, claimed: Reason): Reason {
  if (!moreRejected || state !== "WORK" || claimed.code === "unwritten") return claimed;
  const hint = `the server rejects the results of so many tasks that pg-task cannot tell whether this is one of them: if it is, the log line "result rejected by the server, retrying" has the id ${id}`;
  return { ...claimed, remedy: claimed.remedy === undefined ? hint : `${claimed.remedy}; ${hint}` };
}

function claimedReason({ id, state, owner, ownerLives, pid, start, remote, runEnded }: TaskSituation): Reason {
  const [ownerPid = ""] = (owner ?? "").split(" ");
  if (!ownerLives) {
    return reason(
      "orphaned",
      `the server process ${ownerPid} that ran it is gone, or serves another table of which this one is a copy`,
      `a manager rescues it within seconds; without a manager, the next one does when it starts; if this lasts although a manager serves the table, search the log for "rescue rejected by the server, retrying" with the id ${id}, or another transaction holds a lock on its row`,
    );
  }
  if (state === "PLAN") {
    const text = `it was set to PLAN while it was running in server process ${ownerPid}: that run must end first`;
    return reason("run-ends-first", text);
  }
  if (state === "TAKE") return reason("queued", `it is queued in the session of server process ${ownerPid}`);
  const since = `it has been running since ${start ?? "a moment ago"}`;
  if (remote) {
    return reason(
      "running",
      `${since} on its remote server, in server process ${pid ?? "?"}`,
      `pg-task stop ${id} cancels it; if that server is unreachable, only once it is reachable again or pg_task.reset has passed`,
    );
  }
  if (runEnded) {
    return reason(
      "unwritten",
      `it started at ${start ?? "an unknown time"}, its run in server process ${ownerPid} has ended, and its result is not written yet`,
      `if this lasts, search the log for "result rejected by the server, retrying" (a trigger or constraint of yours) with the id ${id}; or another transaction holds a lock on its row`,
    );
  }
  return reason("running", `${since} in server process ${pid ?? ownerPid}`, `pg-task stop ${id} cancels it`);
}

function lockReason({ id, start, owner }: TaskSituation, wait: LockWait): Reason {
  const [ownerPid = ""] = (owner ?? "").split(" ");
  const told = reason(
    "waits-for-lock",
    `it has been running since ${start ?? "a moment ago"} in server process ${ownerPid}, and waits for ${describeLockWait(wait)}`,
    `${describeUnblocking(wait)}; pg-task stop ${id} cancels the task`,
    wait.blockers.flatMap(({ task }) => task ?? []),
  );
  return { ...told, page: pageRemedyOf(wait.blockers) };
}

/** Blockers that run tasks have pages of their own. */
function pageRemedyOf(blockers: readonly Blocker[]): PageRemedy {
  const others = blockers.filter(({ task }) => task === null);
  const [hidden] = others.filter(({ pid, endable, started }) => pid !== 0 && !endable && started === null);
  return {
    ...(others.some(({ pid }) => pid === 0)
      ? { hint: "End the prepared transaction with COMMIT PREPARED or ROLLBACK PREPARED." }
      : {}),
    ...(hidden === undefined
      ? {}
      : {
          hint: `Commit or roll back in server process ${hidden.pid}. The entry's user may not see or end it; a user who may can:`,
          statement: `SELECT pg_terminate_backend(${hidden.pid});`,
        }),
    blockers: others.filter(({ pid }) => pid !== 0),
  };
}

const copyReasons = ({ copy }: TableSituation): Reason[] =>
  copy === null ? [] : [reason("table-copied", describeCopy(copy, 0), errorDefinitions.SCHEMA_COPY.remedy)];

function managerReasons({ copy, hasLeader, hasManager }: TableSituation): Reason[] {
  if (hasManager || copy !== null) return [];
  if (hasLeader === false)
    return [reason("no-leader", "no pg-task process leads with this configuration", "start one: pg-task start")];
  const remedy =
    hasLeader === true
      ? 'search the leader\'s log for the table, or for lines with "retrying" or "waiting"'
      : "start pg-task, or see its log";
  return [reason("no-manager", "no manager serves the table", remedy)];
}

function rowLockReasons({ lock }: TableSituation): Reason[] {
  if (lock === null) return [];
  const { by } = lock;
  if (by === null) {
    const text = "its row is locked by an open transaction, possibly several";
    return [reason("row-locked", text, "commit or end the transaction that changed the row")];
  }
  const { pid, user, name, openMs, task } = by;
  if (task !== null) {
    const text = `its row is locked by task ${task}, which runs in server process ${pid}`;
    return [{ ...reason("row-locked", text, `pg-task stop ${task} cancels that task`, [task]), page: {} }];
  }
  const open = openMs === null ? "" : `, open for ${Math.max(0, Math.round(openMs / 1000))} s`;
  const told = reason(
    "row-locked",
    `its row is locked by the open transaction of server process ${pid} (${user ?? "?"}, ${name ?? "?"}${open})`,
    `commit there, or end it: SELECT pg_terminate_backend(${pid})`,
  );
  return [{ ...told, page: pageRemedyOf([by]) }];
}

function aheadReasons({ ahead, aheadMore }: TaskSituation): Reason[] {
  if (ahead === 0) return [];
  const text = `${aheadMore ? "more than " : ""}${ahead} due ${ahead === 1 ? "task of its group comes" : "tasks of its group come"} first (a larger max first, then the smaller id)`;
  return [reason("behind-others", text)];
}

function roleReasons(task: TaskSituation, { role }: TableSituation): Reason[] {
  if (role === null) return [];
  const { role: name, login, problem, max, sessions } = role;
  if (problem !== null) {
    const text = `it runs as role ${name}, whose tasks fail or wait: ${problem}`;
    return [reason("role-refused", text, "pg-task doctor names what is missing")];
  }
  if (!isDue(task) || max === null || sessions < max) return [];
  const text = `it runs as role ${name}, whose login ${login} has ${sessions} of at most ${max} sessions`;
  return [reason("role-limit", text, "wait for one of its tasks to end, or raise max in the table of the roles")];
}

function limitReasons(task: TaskSituation, table: TableSituation): Reason[] {
  const { tableRuns, groupRuns, shareRuns, max } = task;
  const { maxRuns, maxSessions, runningSessions, reserve, freeConnections } = table;
  const reasons: Reason[] = [];
  if (tableRuns >= maxRuns) {
    const text = `the table runs ${tableRuns} ${tableRuns === 1 ? "task" : "tasks"}, and pg_task.run allows ${maxRuns}`;
    reasons.push(reason("run-limit", text, "wait, or raise pg_task.run"));
  }
  const allRun = Math.max(tableRuns, runningSessions);
  if (allRun >= maxSessions) {
    const text = `${allRun} ${allRun === 1 ? "session runs" : "sessions run"}, and pg_conf.max allows ${maxSessions} for all tables together`;
    reasons.push(reason("session-limit", text, "wait, or raise pg_conf.max"));
  }
  const left = Math.min(maxSessions - allRun, maxRuns - tableRuns);
  const total = Math.min(maxSessions, maxRuns);
  const reserved = reservedSessions(total, reserve);
  const share = shareOf(table.share, task.group ?? "");
  const hasRuns = share === null ? groupRuns > 0 && groupRuns <= Math.max(max, 0) : shareRuns > 0;
  if (share !== null && left <= 0) {
    const text = `its share ${JSON.stringify(share)} has ${shareRuns} of ${total} sessions, and the next one goes to the share with the fewest for its weight (pg_task.share)`;
    reasons.push(reason("share", text, "wait, or raise the weight of its share in pg_task.weights"));
  }
  if (hasRuns && left > 0 && left <= reserved) {
    const [whose, others] = share === null ? ["group", "groups"] : [`share ${JSON.stringify(share)}`, "shares"];
    const text = `its ${whose} already runs something, and ${reserved} of ${total} sessions ${reserved === 1 ? "is" : "are"} reserved for ${others} that run nothing (pg_conf.reserve)`;
    reasons.push(reason("reserve", text, "wait, raise pg_conf.max or pg_task.run, or lower pg_conf.reserve"));
  }
  if (freeConnections <= 0) {
    const text = "the server has no connections left: pg-task leaves the last ten to other clients";
    reasons.push(reason("no-connection-room", text, "raise max_connections, or close unused connections"));
  }
  return reasons;
}
