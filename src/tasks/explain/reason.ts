import type { StartBlocker } from "../../manager/schema/startRule.sql.js";
import type { Pause } from "../pauses.js";
import type { TaskSituation } from "./taskSituation.js";
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
    | "run-limit"
    | "session-limit"
    | "reserve"
    | "no-connection-room"
    | "no-session"
    | "due";
  readonly text: string;
  readonly remedy?: string;
  /** Ids of the tasks that block this task. */
  readonly tasks?: readonly string[];
}

type Told = Omit<Reason, "code">;

export const blockerReason = (code: StartBlocker, task: TaskSituation, pauses: readonly Pause[]): Reason => ({
  code,
  ...tell[code](task, pauses),
});

const planForNow = ({ id }: TaskSituation): string => `pg-task run-now ${id} plans it for now`;

const tell: Readonly<Record<StartBlocker, (task: TaskSituation, pauses: readonly Pause[]) => Told>> = {
  "waits-for-others": ({ id, waitsFor }) => waitsForOthers(id, waitsFor ?? []),
  "schedule-paused": (task) => schedulePaused(task),
  "never-due": (task) => ({ text: `its plan is ${task.plan}`, remedy: planForNow(task) }),
  retry: ({ id, attempt, retry, plan, problem }) => ({
    text: `it has failed, and its retry ${attempt} of ${retry} is planned for ${plan}: ${problem}`,
    remedy: `pg-task run-now ${id} tries it now`,
  }),
  "not-due": (task) => ({
    text: `it is planned for ${task.plan}${task.max < 0 ? `; after each run its group pauses for ${-task.max} ms, as its max says` : ""}`,
    remedy: planForNow(task),
  }),
  "too-late": (task) => ({
    text: "plan + active has passed: it will expire (GONE) instead of running",
    remedy: planForNow(task),
  }),
  "table-paused": (_, pauses) => ({
    text: `the whole table ${pausedSince(null, pauses)}`,
    remedy: "pg-task resume ends the pause",
  }),
  "group-paused": ({ group }, pauses) => ({
    text: `its group ${JSON.stringify(group)} ${pausedSince(group, pauses)}`,
    remedy: `pg-task resume --group ${JSON.stringify(group)} ends the pause`,
  }),
  "out-of-queue": () => ({
    text: "it is in PLAN, but not in the queue (ready is null): a trigger of the table was disabled when the row was written",
    remedy: "pg-task doctor names the trigger; pg-task run-now adds the task to the queue",
  }),
  "key-runs": ({ keyRunsIn }) => ({
    text: `task ${keyRunsIn} has the same key and must end first`,
    tasks: keyRunsIn === null ? [] : [keyRunsIn],
  }),
  "group-limit": (task) => groupLimit(task),
  gap: ({ id, gapMs, gapLeftMs, lastStart }) => ({
    text: `its gap is ${formatDuration(gapMs)}, and a task of its group may have started at ${lastStart}: it waits for at least ${formatDuration(Math.max(gapLeftMs ?? 0, 0))} more`,
    remedy: `UPDATE … SET gap = '0' WHERE id = ${id} lets it start without waiting`,
  }),
};

function pausedSince(group: string | null, pauses: readonly Pause[]): string {
  const pause = pauses.find((each) => each.group === group);
  const why = pause === undefined || pause.reason === null ? "" : `: ${pause.reason}`;
  return `has been paused since ${pause?.since ?? "a moment ago"}${why}`;
}

function schedulePaused({ id, attempt, retry, problem }: TaskSituation): Told {
  const tried = attempt > 0;
  return {
    text: `its schedule is paused${tried ? `, and its retry ${attempt} of ${retry} waits: ${problem}` : ""}`,
    remedy: `pg-task resume --schedule ${id} plans its next time${tried ? " and drops this retry" : ""}; pg-task run-now ${id} ends the pause, too, and ${tried ? "tries" : "runs"} it now`,
  };
}

function waitsForOthers(id: string, predecessors: readonly string[]): Told {
  const names = predecessors.length === 0 ? "others, which have just ended" : `the end of ${predecessors.join(", ")}`;
  return {
    text: `it waits for ${names}`,
    remedy: `UPDATE … SET after = NULL WHERE id = ${id} lets it go`,
    tasks: predecessors.flatMap((each) => each.split(" ", 1)),
  };
}

function groupLimit({ group, max, groupRuns, claimedOfGroup }: TaskSituation): Told {
  const ids = [...claimedOfGroup, ...(claimedOfGroup.length < groupRuns ? ["…"] : [])].join(", ");
  return {
    text: `its group ${JSON.stringify(group)} runs ${groupRuns}${ids === "" ? "" : ` (${ids})`}, and its max allows ${Math.max(max, 0)} besides it${max < 0 ? ", since a negative max is a pause" : ""}`,
    remedy:
      max === 0
        ? "tasks of one group run one after another unless max allows more: wait, use several groups, or set max"
        : "wait for them, or raise its max: UPDATE … SET max = … WHERE id = …",
    tasks: claimedOfGroup,
  };
}
