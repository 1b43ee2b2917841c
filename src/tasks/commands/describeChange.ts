import type { Change, ChangeResult } from "./changeTasks.js";

export const runInstead = (id: string): string => `pg-task run-now ${id} runs the waiting task with the same key`;

/** What runs tasks in TAKE or WORK that no session owns: a stopped task can be retried, also one that has never run. */
export const stopAndRetry = (ids: readonly string[]): string =>
  `pg-task stop ${ids.join(",")} && pg-task retry ${ids.join(",")}`;

/** What the user can do about a task that was not changed. Most are given the task's id. */
const commandRemedies = {
  locked: "try again, or see pg-task why",
  isRunning: "--running deletes it and cancels its run",
  hasEnded: (id: string): string => `pg-task retry ${id} runs it again`,
  /** For a task in TAKE or WORK that no session owns. */
  unowned: (id: string): string => `${stopAndRetry([id])} runs it`,
  /** Given the task that waits with the key. */
  keyWaits: runInstead,
};

type Remedies = typeof commandRemedies;

export const webRemedies: Remedies = {
  locked: "try again",
  isRunning: "stop it first",
  hasEnded: () => "retry runs it again",
  unowned: () => "stop it, then retry it",
  keyWaits: (id) => `run the waiting task ${id} with the same key now`,
};

/** What the library lacks, a command does. */
export const libraryRemedies: Remedies = {
  locked: "try again",
  isRunning: "with the option running: true, it is deleted and its run cancelled",
  hasEnded: () => "retry runs it again",
  unowned: () => "stop it, then retry it",
  keyWaits: (id) => `task ${id}; the command pg-task run-now ${id} runs that one now`,
};

/** The text is meant to be shown after the task's id. */
export function describeChange(change: Change, result: ChangeResult, remedies = commandRemedies): string {
  switch (result.outcome) {
    case "changed":
      return describeDone(change, result);
    case "refused":
      return describeRefusal(change, result, remedies);
    case "missing":
      return "no such task";
    case "locked":
      return `row locked by another transaction: ${remedies.locked}`;
    case "failed":
      return `the server refused: ${result.reason ?? ""}`;
    default:
      return result.outcome satisfies never;
  }
}

function describeDone(change: Change, { state, attempt, claimed, unlinked, schedule }: ChangeResult): string {
  const ended = schedule === "ended" ? "; its schedule has ended" : "";
  switch (change) {
    case "stop":
      // A schedule goes on after a run that has committed.
      if (claimed) {
        const itsSchedule = schedule === "ended" ? ", otherwise its schedule ends" : "";
        return `cancelling; ends as DONE if already committed${itsSchedule}`;
      }
      return `${attempt > 0 ? `stopped before its retry ${attempt}` : "stopped before it ran"}${ended}`;
    case "retry":
    case "retry-without-waiting":
      return unlinked
        ? `was ${state}, runs again now; does not repeat, because its successor exists`
        : `was ${state}, runs again now${schedule === "started" ? "; its schedule goes on" : ""}`;
    case "run-without-waiting":
      return "no longer waits for others";
    case "run-now":
      return schedule === "resumed" ? "due now; its schedule is no longer paused" : "due now";
    case "pause":
      return attempt > 0 ? `paused; resume drops its waiting retry ${attempt}, run-now makes it` : "paused";
    case "resume":
      return attempt > 0
        ? `resumed; its waiting retry ${attempt} was dropped, and the next run has all its tries`
        : "resumed";
    case "delete":
    case "delete even running":
      return `was ${state}, deleted${claimed ? "; cancelling its run" : ""}${ended}`;
    default:
      return change satisfies never;
  }
}

const runningChanges: ReadonlySet<Change> = new Set(["retry", "retry-without-waiting", "run-now"]);

function describeRefusal(
  change: Change,
  { id, state, claimed, keyWaitsIn, reason }: ChangeResult,
  remedies: Remedies,
): string {
  if (claimed && state !== "WORK" && state !== "TAKE") {
    return `is ${state}, but its run is just ending: try again`;
  }
  if (runningChanges.has(change) && !claimed && (state === "WORK" || state === "TAKE")) {
    return `is in ${state}, but no session owns it: ${remedies.unowned(id)}`;
  }
  switch (change) {
    case "stop":
      return `already ${state}`;
    case "retry":
    case "retry-without-waiting":
      if (keyWaitsIn !== null) return `${reason}: ${remedies.keyWaits(keyWaitsIn)}`;
      if (reason !== null) return reason;
      return state === "PLAN" ? "already waiting (PLAN)" : `running (${state})`;
    case "run-now":
    case "run-without-waiting":
      if (reason !== null) return reason;
      if (claimed) return `running (${state})`;
      return `is ${state}: ${keyWaitsIn === null ? remedies.hasEnded(id) : remedies.keyWaits(keyWaitsIn)}`;
    case "pause":
    case "resume":
      return reason ?? `is ${state}`;
    case "delete":
    case "delete even running":
      return `running (${state}): ${remedies.isRunning}`;
    default:
      return change satisfies never;
  }
}
