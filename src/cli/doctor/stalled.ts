import { setTimeout as sleep } from "node:timers/promises";
import { readDueFirst, type StalledTask } from "../../tasks/queries/dueFirst.js";
import { readSessions } from "../../tasks/queries/executorSessions.js";
import { readUserTriggers } from "../../tasks/queries/userTriggers.js";
import { findReasons } from "../commands/explainPlan.js";
import type { OpenTable } from "../support/openTable.js";
import { ok, warn, type Check } from "./check.js";

/** What has not been taken for so long though nothing keeps it is not just about to be, in ms. */
const stalledMs = 10_000;
const lookMs = 500;
/** How many tasks are looked at more closely. */
const mostTasks = 5;

/** Takes as long as there is something due that nothing keeps from starting, up to ten seconds. */
export async function stalled(opened: OpenTable): Promise<Check> {
  const until = performance.now() + stalledMs;
  let left = await waiting(opened, null);
  while (left.length > 0 && performance.now() < until) {
    await sleep(lookMs);
    left = await waiting(opened, left);
  }
  if (left.length === 0) return ok("stalls", "nothing waits that could start");
  const list = left.map(({ id, group }) => `${id} of group ${JSON.stringify(group)}`);
  const triggers = await readUserTriggers(opened.client, opened.table);
  const kept =
    triggers.length === 0
      ? ""
      : `; a trigger of yours that returns NULL for a task's row keeps it back, look at ${triggers.join(", ")}`;
  const bug =
    triggers.length === 0 ? "report that as a bug" : "and none of these does, report that as a bug";
  return warn(
    "stalls",
    `due, and not taken in ${stalledMs / 1000} s, and neither rows nor sessions show why: ${list.join(", ")}`,
    `look into the log of pg-task: "refused by the server" names a task that a trigger or constraint of yours refuses, "the server has no room for more connections of remote tasks" is why those wait${kept}; where it says "due tasks are not taken though sessions are free", ${bug}`,
  );
}

/** Those of `before`, or any, that come first in their groups and could start, while a session is free for them. */
async function waiting(
  opened: OpenTable,
  before: readonly StalledTask[] | null,
): Promise<readonly StalledTask[]> {
  const { client, table } = opened;
  const due = await readDueFirst(client, table, mostTasks);
  const same = due.filter(({ id }) => before === null || before.some((each) => each.id === id));
  if (same.length === 0) return same;
  const { running, free } = await readSessions(client, table);
  if (running > 0 && free === 0) return [];
  const could: StalledTask[] = [];
  for (const task of same) {
    const reasons = await findReasons(opened, task.id);
    if (reasons?.every(({ code }) => code === "due") === true) could.push(task);
  }
  return could;
}
