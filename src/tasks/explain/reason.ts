import type { StartBlocker } from "../../manager/schema/startRule.sql.js";
import type { Pause } from "../pauses.js";
import type { Blocker } from "./locks.js";
import type { TableSituation, TaskSituation } from "./taskSituation.js";
import { describeSuspension } from "../../shared/describeSchedule.js";
import { formatDuration } from "../../shared/formatDuration.js";

/** A reason why a task does not start. If the task is running or has ended, the reason says so. */
export interface Reason {
  readonly code:
    | StartBlocker
    | "ended"
    | "stopping"
    | "running"
    | "waits-for-lock"
    | "rejected"
    | "unwritten"
    | "queued"
    | "orphaned"
    | "run-ends-first"
    | "table-copied"
    | "no-leader"
    | "no-manager"
    | "row-locked"
    | "behind-others"
    | "role-refused"
    | "role-limit"
    | "run-limit"
    | "session-limit"
    | "reserve"
    | "share"
    | "no-connection-room"
    | "no-session"
    | "due";
  readonly text: string;
  readonly remedy?: string;
  /** Ids of the tasks that block this task, or that it is about. */
  readonly tasks?: readonly string[];
  /** What ends the reason, if a user can do it at once. */
  readonly action?: ReasonAction;
  /** For the page, whose users have buttons instead of commands. */
  readonly page?: PageRemedy;
}

export interface PageRemedy {
  /** Instead of `remedy`. */
  readonly hint?: string;
  /** SQL that ends the reason, to be copied. */
  readonly statement?: string;
  /** The other sessions that keep the task waiting. */
  readonly blockers?: readonly Blocker[];
}

/** `group`: of the pause that ends, null for that of the whole table. */
type ReasonAction =
  | { readonly name: "run-now" | "run-without-waiting" | "retry-without-waiting" | "resume-schedule" }
  | { readonly name: "resume"; readonly group: string | null };

type Told = Omit<Reason, "code">;

type Table = Pick<TableSituation, "pauses" | "qualified">;

export const blockerReason = (code: StartBlocker, task: TaskSituation, table: Table): Reason => ({
  code,
  ...tell[code](task, table),
});

const runNow: ReasonAction = { name: "run-now" };

const planForNow = ({ id }: TaskSituation): string => `pg-task run-now ${id} plans it for now`;

const tell: Readonly<Record<StartBlocker, (task: TaskSituation, table: Table) => Told>> = {
  "waits-for-others": waitsForOthers,
  "schedule-paused": schedulePaused,
  "never-due": (task) => ({ text: `its plan is ${task.plan}`, remedy: planForNow(task), action: runNow }),
  retry: ({ id, attempt, retry, plan, problem }) => ({
    text: `it has failed, and its retry ${attempt} of ${retry} is planned for ${plan}: ${problem}`,
    remedy: `pg-task run-now ${id} tries it now`,
    action: runNow,
  }),
  "not-due": (task) => ({
    text: `it is planned for ${task.plan}${task.max < 0 ? `; after each run its group pauses for ${-task.max} ms, as its max says` : ""}`,
    remedy: planForNow(task),
    action: runNow,
  }),
  "too-late": (task) => ({
    text: "plan + active, or the time limit of its chain, has passed: it will expire (GONE) instead of running",
    remedy: planForNow(task),
    action: runNow,
  }),
  "table-paused": (_, { pauses }) => ({
    text: `the whole table ${pausedSince(null, pauses)}`,
    remedy: "pg-task resume ends the pause",
    action: { name: "resume", group: null },
  }),
  "group-paused": ({ group }, { pauses }) => ({
    text: `its group ${JSON.stringify(group)} ${pausedSince(group, pauses)}`,
    remedy: `pg-task resume --group ${JSON.stringify(group)} ends the pause`,
    action: { name: "resume", group: group ?? "" },
  }),
  "out-of-queue": () => ({
    text: "it is in PLAN, but not in the queue (ready is null): a trigger of the table was disabled when the row was written",
    remedy: "pg-task doctor names the trigger; pg-task run-now adds the task to the queue",
    action: runNow,
  }),
  "key-runs": ({ keyRunsIn }) => ({
    text: `task ${keyRunsIn} has the same key and must end first`,
    tasks: keyRunsIn === null ? [] : [keyRunsIn],
  }),
  turn: waitsForTurn,
  "group-limit": groupLimit,
  gap: ({ id, gapMs, gapLeftMs, lastStart }, { qualified }) => ({
    text: `its gap is ${formatDuration(gapMs)}, and a task of its group may have started at ${lastStart}: it waits for at least ${formatDuration(Math.max(gapLeftMs ?? 0, 0))} more`,
    remedy: `UPDATE ${qualified} SET gap = '0' WHERE id = ${id} lets it start without waiting`,
    page: {
      hint: "To let it start without waiting, set its gap:",
      statement: `UPDATE ${qualified} SET gap = '0' WHERE id = ${id};`,
    },
  }),
};

function pausedSince(group: string | null, pauses: readonly Pause[]): string {
  const pause = pauses.find((each) => each.group === group);
  const why = pause === undefined || pause.reason === null ? "" : `: ${pause.reason}`;
  return `has been paused since ${pause?.since ?? "a moment ago"}${why}`;
}

function schedulePaused({ id, attempt, retry, problem, suspendedAfter }: TaskSituation): Told {
  const tried = attempt > 0;
  return {
    text: `its schedule is ${suspendedAfter === null ? "paused" : describeSuspension(suspendedAfter)}${tried ? `, and its retry ${attempt} of ${retry} waits: ${problem}` : ""}`,
    remedy: `pg-task resume --schedule ${id} plans its next time${tried ? " and drops this retry" : ""}; pg-task run-now ${id} ends the pause, too, and ${tried ? "tries" : "runs"} it now`,
    action: { name: "resume-schedule" },
  };
}

function waitsForOthers({ id, waitsFor, waitsForNumber: number }: TaskSituation, { qualified }: Table): Told {
  const predecessors = waitsFor ?? [];
  const more = number > predecessors.length ? ` and ${number - predecessors.length} more` : "";
  const how = number > 1 ? `${number} tasks: ` : "";
  const names =
    predecessors.length === 0 ? "others, which have just ended" : `the end of ${how}${predecessors.join(", ")}${more}`;
  return {
    text: `it waits for ${names}`,
    remedy: `UPDATE ${qualified} SET after = NULL, upon = NULL WHERE id = ${id} lets it go`,
    action: { name: "run-without-waiting" },
    tasks: predecessors.flatMap((each) => each.split(" ", 1)),
  };
}

function waitsForTurn({ alone, turn, turnWaitsFor }: TaskSituation): Told {
  const own = alone === null ? "" : `it is to run alone in ${alone === "table" ? "the table" : "its group"}: `;
  const ends = turnWaitsFor.length === 0 ? "all others have ended" : `these have ended: ${turnWaitsFor.join(", ")}`;
  if (turn === null) return { text: `${own}it takes its turn when other due tasks have had theirs` };
  if (turn.own) return { text: `${own}it waits until ${ends}`, tasks: turnWaitsFor };
  const tasks = [turn.id, ...turnWaitsFor];
  const where = turn.group === null ? "the table" : `group ${JSON.stringify(turn.group)}`;
  const chain = `it waits for the chain of task ${turn.id}`;
  if (turn.begun) return { text: `${own}${chain}, which runs alone in ${where}`, tasks };
  return { text: `${own}${chain}, which is to run alone in ${where} as soon as ${ends}`, tasks };
}

function groupLimit({ id, group, max, groupRuns, claimedOfGroup }: TaskSituation, { qualified }: Table): Told {
  const raise = `UPDATE ${qualified} SET max = ${Math.max(groupRuns, 1)} WHERE id = ${id}`;
  const ids = [...claimedOfGroup, ...(claimedOfGroup.length < groupRuns ? ["…"] : [])].join(", ");
  return {
    text: `its group ${JSON.stringify(group)} runs ${groupRuns}${ids === "" ? "" : ` (${ids})`}, and its max allows ${Math.max(max, 0)} besides it${max < 0 ? ", since a negative max is a pause" : ""}`,
    remedy: `${max === 0 ? "tasks of one group run one after another unless max allows more: wait, use several groups, or set" : "wait for them, or raise"} its max: ${raise}`,
    page: {
      hint: `${max === 0 ? "Tasks of one group run one after another unless max allows more. " : ""}To let it run besides the others, ${max === 0 ? "set" : "raise"} its max:`,
      statement: `${raise};`,
    },
    tasks: claimedOfGroup,
  };
}
