import { setTimeout as sleep } from "node:timers/promises";
import { exitCodes } from "../../shared/errorCodes.js";
import { stalledMs } from "../../shared/tuning.js";
import { readFirstDueTasks, type FirstDueTask } from "../../tasks/queries/firstDueTasks.js";
import { readSessions } from "../../tasks/queries/executorSessions.js";
import { readSessionRefusal, refusalRemedy } from "../../tasks/queries/sessionRefusal.js";
import { readUserTriggers } from "../../tasks/queries/userTriggers.js";
import type { OpenTable } from "../support/openTable.js";
import { readReasons } from "../support/readReasons.js";
import { fail, ok, warn, type Check } from "../inspection/check.js";

const pollMs = 500;
/** Maximum number of tasks that are examined. */
const maxTasks = 5;

/**
 * Checks for due tasks that could start but do not. Returns as soon as there is no such task, and after 10 s at the
 * latest.
 */
export async function checkStalls(opened: OpenTable): Promise<Check> {
  const until = performance.now() + stalledMs;
  let startable = await readStartable(opened, null);
  while (startable.length > 0 && performance.now() < until) {
    await sleep(pollMs);
    startable = await readStartable(opened, startable);
  }
  if (startable.length === 0) return ok("stalls", "no due task that could start");
  const list = startable.map(({ id, group }) => `${id} of group ${JSON.stringify(group)}`);
  const triggers = await readUserTriggers(opened.client, opened.table);
  const refusal = await readSessionRefusal(opened.client, opened.table);
  if (refusal !== null) {
    return fail(
      "stalls",
      `due, not claimed in ${stalledMs / 1000} s, no session is free, and the server refuses new ones, ${refusal.reason}: ${list.join(", ")}`,
      refusalRemedy(refusal),
      exitCodes.CONNECTION,
    );
  }
  // If a trigger rejects the first task that is claimed, no session is opened.
  if (triggers.length === 0 && (await readSessions(opened.client, opened.table)).sessions === 0) {
    return fail(
      "stalls",
      `due, not claimed in ${stalledMs / 1000} s, and no session of the table is open: ${list.join(", ")}`,
      'the log of pg-task says why it cannot open one ("cannot open a session, tasks wait"): for example, the password of the role was changed on the server, so give pg-task the new one',
      exitCodes.CONNECTION,
    );
  }
  const triggerHint =
    triggers.length === 0
      ? ""
      : `; a trigger of yours that returns NULL for a task's row keeps it from starting, see ${triggers.join(", ")}`;
  const bug = triggers.length === 0 ? "report a bug" : "and none of these does, report a bug";
  return warn(
    "stalls",
    `due, not claimed in ${stalledMs / 1000} s, and neither rows nor sessions show why: ${list.join(", ")}`,
    `see the log of pg-task: "rejected by the server" names a task that a trigger or constraint of yours refuses, "connection limit of the server reached" is why those wait${triggerHint}; if it says "due tasks do not start although sessions are free", ${bug}`,
  );
}

/**
 * Returns tasks that could start now on a free session, at most one for each group: its first due task. If `previous`
 * is given, returns only tasks that are also in `previous`.
 */
async function readStartable(
  opened: OpenTable,
  previous: readonly FirstDueTask[] | null,
): Promise<readonly FirstDueTask[]> {
  const { client, table } = opened;
  const due = await readFirstDueTasks(client, table, maxTasks);
  const same = due.filter(({ id }) => previous === null || previous.some((each) => each.id === id));
  if (same.length === 0) return same;
  const { running, idle } = await readSessions(client, table);
  if (running > 0 && idle === 0 && (await readSessionRefusal(client, table)) === null) return [];
  const startable: FirstDueTask[] = [];
  for (const task of same) {
    const reasons = await readReasons(opened, task.id, { localTimes: false });
    if (reasons?.every(({ code }) => code === "due" || code === "no-session") === true) startable.push(task);
  }
  return startable;
}
