import { lostDependencies } from "../../manager/schema/dependencyTable.js";
import { hasSchedule } from "../../manager/schema/schedulesView.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { warn, ok, type Check } from "../inspection/check.js";
import { checkWaiting } from "../inspection/waiting.js";

/** The maximum number of ids in one line. */
const maxShown = 10;

/**
 * SQL of a query for the ids of the tasks that wait, or have waited, for others, and are planned for infinity after that.
 * Earlier versions have put off rows a second time that were loaded from a dump with `--data-only`. The plan of a schedule
 * at infinity is a pause, which another check reports. The rows are read by the index of planned times.
 */
const neverPlanned = ({ qualified }: TaskTable): string => `
  SELECT t.id FROM ${qualified} AS t
  WHERE NOT t.ready AND t.plan >= 'infinity' AND t.after IS NOT NULL AND t.state::text = 'PLAN' AND t.owner IS NULL
    AND (t.wait IS NULL OR t.due = 'infinity') AND NOT ${hasSchedule("t")}
  ORDER BY t.id`;

/** Checks what the column `after` depends on. Meant for a table whose tasks can wait for others. */
export async function checkOrder(client: Client, table: TaskTable): Promise<Check> {
  const { qualified } = table;
  const lost = await readIds(client, `WITH ${lostDependencies(table)} SELECT id FROM lost ORDER BY id`);
  if (lost !== null) {
    return warn(
      "order",
      `waiting for others, but their rows in ${table.qualifiedDependencies} were deleted: ${lost.shown}`,
      `a manager looks the others up again when it starts, and within about a minute of the next change; or UPDATE ${qualified} SET after = after || after WHERE id IN (${lost.ids})`,
    );
  }
  const unplanned = await readIds(client, neverPlanned(table));
  if (unplanned !== null) {
    return warn(
      "order",
      `planned for infinity once those that they wait for have ended, so that nothing starts them: ${unplanned.shown}`,
      `unless this is meant (they may have been loaded from a dump by an earlier version), UPDATE ${qualified} SET plan = now() WHERE id IN (${unplanned.ids})`,
    );
  }
  return (await checkWaiting(client, table)) ?? ok("order", "no task waits in vain");
}

/** Returns the first ids of a query, as a list for SQL and as the text of a line. Null if there are none. */
async function readIds(
  client: Client,
  query: string,
): Promise<{ readonly ids: string; readonly shown: string } | null> {
  const { rows } = await client.query<{ id: string }>(
    `SELECT q.id::text AS id FROM (${query} LIMIT ${maxShown + 1}) AS q`,
  );
  if (rows.length === 0) return null;
  const ids = rows
    .slice(0, maxShown)
    .map(({ id }) => id)
    .join(", ");
  return { ids, shown: rows.length > maxShown ? `${ids} and others` : ids };
}
