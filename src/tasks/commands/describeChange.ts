import type { Change, Changed } from "./changeTasks.js";

/** What came of it for one task, as a sentence about it. */
export function changeText(change: Change, result: Changed): string {
  switch (result.outcome) {
    case "changed":
      return changedText(change, result);
    case "refused":
      return refusedText(change, result);
    case "missing":
      return "there is no such task";
    case "locked":
      return "its row is locked by somebody: try again, or see pg-task explain-plan";
    case "failed":
      return `the server refused: ${result.reason ?? ""}`;
    default:
      return result.outcome satisfies never;
  }
}

function changedText(change: Change, { state, held, unlinked }: Changed): string {
  switch (change) {
    case "stop":
      return held
        ? "is being cancelled; should its effect be committed by now, it ends as DONE"
        : "stopped: it does not run";
    case "retry":
      return unlinked
        ? `was ${state}, runs again now; it has been repeated in another row, so it does not repeat from here`
        : `was ${state}, runs again now`;
    case "run-now":
      return "planned for now";
    case "delete":
    case "delete even running":
      return held ? `was ${state}, deleted; its run is being cancelled` : `was ${state}, deleted`;
    default:
      return change satisfies never;
  }
}

function refusedText(change: Change, { id, state, held }: Changed): string {
  if (held && state !== "WORK" && state !== "TAKE") {
    return `is ${state}, and its run is just ending: try again`;
  }
  switch (change) {
    case "stop":
      return `is ${state} already`;
    case "retry":
      return state === "PLAN" ? "is PLAN: it waits already" : `is ${state}: it runs`;
    case "run-now":
      return held ? `is ${state}: it runs` : `is ${state}: pg-task retry ${id} runs it again`;
    case "delete":
    case "delete even running":
      return `is ${state}: it runs; --running deletes it and cancels the run`;
    default:
      return change satisfies never;
  }
}
