import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Entry } from "../../shared/config/types.js";
import { errorDefinitions } from "../../shared/errorCodes.js";
import type { Client } from "../../shared/postgres/client.js";
import { describeCopy } from "../../manager/schema/home.js";
import { readCopy } from "../../tasks/queries/copy.js";
import { readSessions } from "../../tasks/queries/executorSessions.js";
import { fail, ok, type Check } from "./check.js";

export async function checkHome(
  client: Client,
  table: TaskTable,
  { parameters }: Pick<Entry, "parameters">,
): Promise<Check> {
  const reason = await readCopy(client, table, { parameters });
  if (reason === null) return ok("home", "the table is no copy");
  const { running } = await readSessions(client, table);
  return fail("home", describeCopy(reason, running), errorDefinitions.SCHEMA_COPY.remedy);
}
