import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { readBacklog } from "../../tasks/queries/backlog.js";
import { readOrphaned } from "../../tasks/queries/orphaned.js";
import { readPauses } from "../../tasks/commands/pauses.js";
import { readManager } from "../../tasks/queries/clusterProcesses.js";
import { formatDuration } from "../terminal/format.js";
import { ok, warn, type Check } from "./check.js";

export async function manager(client: Client, table: TaskTable): Promise<Check> {
  const found = await readManager(client, table);
  if (found !== null) return ok("manager", `server process ${found.pid}`);
  return warn(
    "manager",
    "none works on the table",
    "start pg-task, or look into its log: it says why a manager waits",
  );
}

/** A task that has been due for so long waits for something else than its turn, in ms. */
const overdueMs = 60_000;

export async function overdue(client: Client, table: TaskTable): Promise<Check> {
  const { due, oldestDueMs } = await readBacklog(client, table);
  if (due.value === 0) return ok("backlog", "nothing is due");
  const text = `${due.exact ? "" : "about "}${due.value} due, the oldest for ${oldestDueMs === null ? "ever" : formatDuration(oldestDueMs)}`;
  if (oldestDueMs !== null && oldestDueMs < overdueMs) return ok("backlog", text);
  return warn(
    "backlog",
    text,
    "pg-task explain-plan says of each why; pg-task groups shows where they wait",
  );
}

export async function pauses(client: Client, table: TaskTable): Promise<Check> {
  const found = await readPauses(client, table);
  if (found.length === 0) return ok("pauses", "none");
  const list = found.map(({ group }) =>
    group === null ? "the whole table" : JSON.stringify(group),
  );
  return warn("pauses", `paused: ${list.join(", ")}`, "pg-task resume lets them go on");
}

export async function orphaned(client: Client, table: TaskTable): Promise<Check> {
  const found = await readOrphaned(client, table);
  if (found === null)
    return ok("orphans", "not looked for: the table is too large to read through");
  if (found.length === 0) return ok("orphans", "none");
  return warn(
    "orphans",
    `in TAKE or WORK, and no session has them: ${found.join(", ")}`,
    "a manager returns those whose session is gone within seconds, others within pg_task.reset; or set them to PLAN yourself",
  );
}
