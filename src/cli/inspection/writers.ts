import { readWriters, revokeWriting } from "../../manager/schema/grants.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { ok, warn, type Check } from "./check.js";

/** Names the roles that may add or change tasks. Their tasks run with all privileges of the entry's user. */
export async function checkWriters(client: Client, table: TaskTable): Promise<Check> {
  const { unrestricted, byColumn } = await readWriters(client, table);
  const some = byColumn.length === 0 ? "" : `; some columns: ${byColumn.join(", ")}`;
  if (unrestricted.length > 0) {
    return warn(
      "writers",
      `${unrestricted.join(", ")} may write tasks, and so run SQL as the entry's user${some}`,
      `${revokeWriting(table, unrestricted)}; then grant what a role needs by column`,
    );
  }
  if (byColumn.length === 0) return ok("writers", "no other role may add or change tasks");
  return ok("writers", `may write some columns of tasks: ${byColumn.join(", ")}`);
}
