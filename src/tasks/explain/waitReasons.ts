import type { Pause } from "../commands/pauses.js";
import type { Locker, Situation } from "./taskSituation.js";

/** Something that keeps a task from running, or says what becomes of it. */
export interface Reason {
  readonly code:
    | "ended"
    | "stopping"
    | "running"
    | "unwritten"
    | "queued"
    | "orphaned"
    | "run-ends-first"
    | "not-due"
    | "never-due"
    | "too-late"
    | "table-paused"
    | "group-paused"
    | "no-leader"
    | "no-manager"
    | "out-of-queue"
    | "row-locked"
    | "group-limit"
    | "behind-others"
    | "run-limit"
    | "session-limit"
    | "no-connection-room"
    | "due";
  /** One sentence. */
  readonly text: string;
  /** What to do about it, where something can be done. */
  readonly remedy?: string;
  /** Ids of the tasks that stand in its way. */
  readonly tasks?: readonly string[];
}

/** What there is around the task; null where it could not be seen. */
export interface TaskSituation {
  readonly pauses: readonly Pause[];
  readonly locked: { readonly by: Locker | null } | null;
  /** The user's own triggers that run when it is taken. */
  readonly triggers: readonly string[];
  readonly leader: boolean | null;
  readonly manager: boolean;
  /** Most tasks of the table at once (`pg_task.run`), and most sessions of one process (`pg_conf.max`). */
  readonly mostRuns: number;
  readonly mostSessions: number;
  /** Sessions that run something for any table of the configuration on this server, as it shows them. */
  readonly allRun: number;
  /** Connections that the server has left for pg-task, below 0 when others take them. */
  readonly room: number;
}

/** Why a task does not run now, what weighs most first; one that runs or has ended says so. */
export function whyNot(task: Situation, around: TaskSituation): Reason[] {
  if (["DONE", "FAIL", "GONE", "STOP"].includes(task.state)) return [ended(task)];
  if (task.owner !== null) return [held(task)];
  if (task.state !== "PLAN") {
    return [
      {
        code: "orphaned",
        text: `it is in ${task.state}, and no session has it`,
        remedy: "a manager returns it to PLAN within pg_task.reset; or set it to PLAN yourself",
      },
    ];
  }
  const reasons = [
    ...whenDue(task),
    ...pausedBy(task, around.pauses),
    ...nobodyThere(around),
    ...inTheQueue(task, around),
    ...(task.waitMs !== null && task.waitMs <= 0 ? limits(task, around) : []),
  ];
  if (reasons.length > 0) return reasons;
  return [due(around)];
}

function due({ triggers }: TaskSituation): Reason {
  const check = "it starts at the manager's next check";
  if (triggers.length === 0) return { code: "due", text: `nothing keeps it: ${check}` };
  const names = triggers.join(", ");
  return {
    code: "due",
    text: `neither rows nor sessions show anything that keeps it: ${check}, unless a trigger of yours on the table (${names}) keeps its row back`,
    remedy:
      'pg-task\'s log names what a trigger refuses ("start refused by the server"), and not the row of which one returns NULL',
  };
}

function ended({ id, state, owner, stop, problem }: Situation): Reason {
  if (owner !== null) {
    return {
      code: "stopping",
      text: `it was set to ${state} while it ran, and its run is just ending`,
    };
  }
  const when = stop === null ? "" : ` at ${stop}`;
  const words: Readonly<Record<string, string>> = {
    DONE: `it ran without error, and ended${when}`,
    FAIL: `it ran with an error, and ended${when}${problem === null ? "" : `: ${problem}`}`,
    GONE: `its active had passed before it could start, and it was given up${when}`,
    STOP: "it was stopped",
  };
  return {
    code: "ended",
    text: words[state] ?? state,
    remedy: `pg-task retry ${id} runs it again`,
  };
}

function held({ id, state, owner, ownerLives, pid, start, remote, runEnded }: Situation): Reason {
  const [ownerPid = ""] = (owner ?? "").split(" ");
  if (!ownerLives) {
    return {
      code: "orphaned",
      text: `the server process ${ownerPid} that had it is gone`,
      remedy:
        "a manager returns it to PLAN within seconds; when none works, at the start of the next",
    };
  }
  if (state === "PLAN") {
    return {
      code: "run-ends-first",
      text: `it was planned anew while it ran in the server process ${ownerPid}: that run ends first`,
    };
  }
  if (state === "TAKE") {
    return {
      code: "queued",
      text: `it is the next, or one of the next, of the session of server process ${ownerPid}`,
    };
  }
  if (remote) {
    return {
      code: "running",
      text: `it has been running since ${start ?? "a moment ago"} on the server of its remote, there in the server process ${pid ?? "?"}`,
      remedy: `pg-task stop ${id} cancels it; while that server cannot be reached, it stays as it is until it can, or pg_task.reset has passed`,
    };
  }
  if (runEnded) {
    return {
      code: "unwritten",
      text: `it began at ${start ?? "an unknown time"}, its run in the server process ${ownerPid} has ended, and its result is not written yet`,
      remedy: `when that lasts, the log says why: look for "result refused by the server" (a trigger or a constraint of yours) with the id ${id}; or somebody has its row locked`,
    };
  }
  return {
    code: "running",
    text: `it has been running since ${start ?? "a moment ago"} in the server process ${pid ?? ownerPid}`,
    remedy: `pg-task stop ${id} cancels it`,
  };
}

function whenDue({ id, plan, waitMs, tooLate, max }: Situation): Reason[] {
  if (waitMs === null) {
    return plan === "-infinity"
      ? []
      : [
          {
            code: "never-due",
            text: `its plan is ${plan}`,
            remedy: `pg-task run-now ${id} plans it for now`,
          },
        ];
  }
  if (waitMs > 0) {
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
      text: "its plan + active has passed: it ends as GONE instead of running",
      remedy: `pg-task run-now ${id} plans it for now`,
    },
  ];
}

function pausedBy({ group }: Situation, pauses: readonly Pause[]): Reason[] {
  return pauses
    .filter((pause) => pause.group === null || pause.group === group)
    .map((pause) => {
      const why = pause.reason === null ? "" : `: ${pause.reason}`;
      const since = `has been paused since ${pause.since}${why}`;
      return pause.group === null
        ? {
            code: "table-paused",
            text: `the whole table ${since}`,
            remedy: "pg-task resume lets it go on",
          }
        : {
            code: "group-paused",
            text: `its group ${JSON.stringify(pause.group)} ${since}`,
            remedy: `pg-task resume --group ${JSON.stringify(group)} lets it go on`,
          };
    });
}

function nobodyThere({ leader, manager }: TaskSituation): Reason[] {
  if (manager) return [];
  if (leader === false) {
    return [
      {
        code: "no-leader",
        text: "no pg-task runs on this configuration",
        remedy: "start one: pg-task start",
      },
    ];
  }
  return [
    {
      code: "no-manager",
      text: "no manager works on the table",
      remedy:
        leader === true
          ? 'the log of the pg-task that leads says why: look for its table, or for lines with "waits"'
          : "start pg-task, or look into its log",
    },
  ];
}

function inTheQueue({ ready }: Situation, { locked }: TaskSituation): Reason[] {
  const reasons: Reason[] = [];
  if (ready === null) {
    reasons.push({
      code: "out-of-queue",
      text: "it is in PLAN, and not in the queue (ready is null): a trigger of the table was off when it was written",
      remedy: "pg-task doctor tells which; pg-task run-now puts it into the queue",
    });
  }
  if (locked !== null) {
    const { by } = locked;
    const open =
      by === null || by.openMs === null
        ? ""
        : `, open for ${Math.max(0, Math.round(by.openMs / 1000))} s`;
    const who =
      by === null
        ? "an open transaction, perhaps of several"
        : `the open transaction of server process ${by.pid} (${by.user ?? "?"}, ${by.name ?? "?"}${open})`;
    reasons.push({
      code: "row-locked",
      text: `its row is locked by ${who}`,
      remedy:
        by === null
          ? "commit or end the transaction that changed the row"
          : `commit there, or end it: SELECT pg_terminate_backend(${by.pid})`,
    });
  }
  return reasons;
}

function limits(task: Situation, around: TaskSituation): Reason[] {
  const reasons: Reason[] = [];
  const { groupRuns, heldBy, ahead, aheadMore, tableRuns } = task;
  const most = Math.max(task.max, 0);
  if (groupRuns > most) {
    const some = [...heldBy, ...(heldBy.length < groupRuns ? ["…"] : [])].join(", ");
    reasons.push({
      code: "group-limit",
      text: `its group ${JSON.stringify(task.group)} runs ${groupRuns}${some === "" ? "" : ` (${some})`}, and it starts beside ${most} at most${task.max < 0 ? ", since its max is a pause" : ""}`,
      remedy: "wait for those, or raise its max: UPDATE … SET max = … WHERE id = …",
      tasks: heldBy,
    });
  }
  if (ahead > 0) {
    reasons.push({
      code: "behind-others",
      text: `${aheadMore ? "more than " : ""}${ahead} due ${ahead === 1 ? "task" : "tasks"} of its group come before it (a larger max first, then the smaller id)`,
    });
  }
  if (tableRuns >= around.mostRuns) {
    reasons.push({
      code: "run-limit",
      text: `the table runs ${tableRuns} ${tableRuns === 1 ? "task" : "tasks"}, and pg_task.run allows ${around.mostRuns}`,
      remedy: "wait, or raise pg_task.run",
    });
  }
  const allRun = Math.max(tableRuns, around.allRun);
  if (allRun >= around.mostSessions) {
    reasons.push({
      code: "session-limit",
      text: `${allRun} ${allRun === 1 ? "session runs" : "sessions run"}, and pg_conf.max allows ${around.mostSessions} for all tables together`,
      remedy: "wait, or raise pg_conf.max",
    });
  }
  if (around.room <= 0) {
    reasons.push({
      code: "no-connection-room",
      text: "the server has no connections left: pg-task leaves the last ten to others",
      remedy: "raise max_connections, or end connections that nobody uses",
    });
  }
  return reasons;
}
