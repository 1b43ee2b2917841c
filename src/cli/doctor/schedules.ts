import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { readScheduleWarnings } from "../../tasks/explain/scheduleWarnings.js";
import { formatCount } from "../terminal/format.js";
import { ok, warn, type Check } from "./check.js";

export async function checkSchedules(client: Client, table: TaskTable): Promise<Check[]> {
  const { examined, more, warnings } = await readScheduleWarnings(client, table);
  if (warnings.length > 0) return warnings.map(({ text, remedy }) => warn("schedules", text, remedy));
  if (examined === 0) return [ok("schedules", "none")];
  const which = more ? `the first ${formatCount(examined, "schedule")}` : formatCount(examined, "schedule");
  return [ok("schedules", `${which}: no problem found`)];
}
