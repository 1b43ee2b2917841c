import type { TaskSituation } from "./taskSituation.js";
import type { Reason } from "./reason.js";

/** Returns the reason in the row of a task itself, if there is one: its plan, or the tasks for which it waits. */
export function planReasons(task: TaskSituation): Reason[] {
  const { id, plan, waitMs, tooLate, max, waitsFor, pausedSchedule, attempt, retry, problem } = task;
  if (waitsFor !== null) return [waitsForOthers(id, waitsFor)];
  if (pausedSchedule) return [schedulePaused(task)];
  if (waitMs !== null && waitMs > 0 && attempt > 0) {
    return [
      {
        code: "retry",
        text: `it has failed, and its retry ${attempt} of ${retry} is planned for ${plan}: ${problem}`,
        remedy: `pg-task run-now ${id} tries it now`,
      },
    ];
  }
  if (waitMs === null && plan !== "-infinity") {
    return [
      {
        code: "never-due",
        text: `its plan is ${plan}`,
        remedy: `pg-task run-now ${id} plans it for now`,
      },
    ];
  }
  if (waitMs !== null && waitMs > 0) {
    return [
      {
        code: "not-due",
        text: `it is planned for ${plan}${max < 0 ? `; after each run its group pauses for ${-max} ms, as its max says` : ""}`,
        remedy: `pg-task run-now ${id} plans it for now`,
      },
    ];
  }
  if (!tooLate) return [];
  return [
    {
      code: "too-late",
      text: "plan + active has passed: it will expire (GONE) instead of running",
      remedy: `pg-task run-now ${id} plans it for now`,
    },
  ];
}

function schedulePaused({ id, attempt, retry, problem }: TaskSituation): Reason {
  const tried = attempt > 0;
  return {
    code: "schedule-paused",
    text: `its schedule is paused${tried ? `, and its retry ${attempt} of ${retry} waits: ${problem}` : ""}`,
    remedy: `pg-task resume --schedule ${id} plans its next time${tried ? " and drops this retry" : ""}; pg-task run-now ${id} ends the pause, too, and ${tried ? "tries" : "runs"} it now`,
  };
}

function waitsForOthers(id: string, predecessors: readonly string[]): Reason {
  const names = predecessors.length === 0 ? "others, which have just ended" : `the end of ${predecessors.join(", ")}`;
  return {
    code: "waits-for-others",
    text: `it waits for ${names}`,
    remedy: `UPDATE … SET after = NULL WHERE id = ${id} lets it go`,
    tasks: predecessors.flatMap((each) => each.split(" ", 1)),
  };
}
