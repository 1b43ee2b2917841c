import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { readScheduleWarnings, type ScheduleWarning } from "../../tasks/explain/scheduleWarnings.js";
import { formatCount } from "../terminal/format.js";
import { ok, warn, type Check } from "./check.js";

/** How many schedules whose last run failed are named at most. */
const maxNamed = 5;

export async function checkSchedules(client: Client, table: TaskTable): Promise<Check[]> {
  const { examined, more, warnings, failed } = await readScheduleWarnings(client, table);
  const checks = warnings.map(toCheck);
  if (failed.length > 0) checks.push(lastRunsFailed(failed));
  if (checks.length > 0) return checks;
  if (examined === 0) return [ok("schedules", "none")];
  const which = more ? `the first ${formatCount(examined, "schedule")}` : formatCount(examined, "schedule");
  return [ok("schedules", `${which}: no problem found, and no last run or try failed`)];
}

/** Checks only what the rules of the schedules say, not how their runs end. */
export async function checkRules(client: Client, table: TaskTable): Promise<Check[]> {
  const { warnings } = await readScheduleWarnings(client, table);
  return warnings.map(toCheck);
}

const toCheck = ({ text, remedy }: ScheduleWarning): Check => warn("schedules", text, remedy);

/** A warning, because a single failed task must not make the command fail. */
function lastRunsFailed(failed: readonly string[]): Check {
  const names = [
    ...failed.slice(0, maxNamed),
    ...(failed.length > maxNamed ? [`${failed.length - maxNamed} more`] : []),
  ];
  return warn(
    "schedules",
    `the last run or try of ${formatCount(failed.length, "schedule")} failed: ${names.join(", ")}`,
    "pg-task list --schedules shows the last runs and tries, pg-task list --state FAIL the errors of runs",
  );
}
