import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { ensureOwnTable } from "./ownTable.js";
import type { TaskTable } from "./taskTable.js";

const comment = "For pg-task's own use: which waiting tasks wait for the end of which tasks";

/**
 * Creates the table of dependencies if it is missing. A row says that the task `task` waits for the end of the task
 * `predecessor`. With `failed`, the predecessor has ended, but not as DONE. Such a row is kept only for tasks that wait
 * for a failure.
 *
 * @param isNew whether the task table has just been created or adopted. Rows that an earlier table of this name has left
 *   are then removed.
 * @throws PgTaskError SCHEMA_INCOMPATIBLE if another relation has the name.
 */
export async function ensureDependencyTable(client: Client, table: TaskTable, isNew: boolean): Promise<void> {
  const { qualifiedDependencies: name } = table;
  const columns = `
    predecessor bigint NOT NULL,
    task bigint NOT NULL,
    failed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (predecessor, task)`;
  const index = `CREATE INDEX ${identifier(table.dependencyIndex)} ON ${name} (task)`;
  await ensureOwnTable(client, { name, comment, columns, index }, isNew);
}

/**
 * SQL of CTEs, the last of which, `lost`, has the ids of tasks that wait for others although no dependency is stored, so
 * that nothing would ever release them. This happens if somebody deletes rows of the table of dependencies. The first
 * CTE reads the waiting tasks by the index of planned times, whatever the server knows about the table.
 */
export const lostDependencies = ({ qualified, qualifiedDependencies }: TaskTable): string => `waiting AS MATERIALIZED (
  SELECT id FROM ${qualified}
  WHERE NOT ready AND plan >= 'infinity' AND wait = 0 AND after IS NOT NULL AND owner IS NULL ORDER BY plan
), lost AS MATERIALIZED (
  SELECT w.id FROM waiting AS w WHERE NOT EXISTS (SELECT FROM ${qualifiedDependencies} AS d WHERE d.task = w.id)
)`;
