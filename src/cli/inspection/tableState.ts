import { missingColumnNames } from "../../manager/schema/adoption/addColumns.js";
import { readLayout } from "../../manager/schema/adoption/layout.js";
import { foreignNames } from "../../manager/schema/adoption/obstacles.js";
import type { TableRecord } from "../../manager/schema/columns.js";
import { latestVersion, nameAnotherPlace, readRecord } from "../../manager/schema/migrations.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** How far a table is one of this pg-task. */
export interface TableState extends TableRecord {
  /** Whether functions of the table name another place, because it was moved or renamed, so that they fail. */
  readonly isElsewhere: boolean;
  /** The columns that a table of the latest version lacks. In any other table, a migration adds missing columns. */
  readonly lost: ReturnType<typeof missingColumnNames>;
  /** The columns of the user that keep an earlier version from being migrated. */
  readonly foreign: ReturnType<typeof foreignNames>;
}

export async function readTableState(client: Client, table: TaskTable): Promise<TableState> {
  const record = await readRecord(client, table);
  const layout = await readLayout(client, table);
  return {
    ...record,
    isElsewhere: await nameAnotherPlace(client, table),
    lost: record.version === latestVersion ? missingColumnNames(layout) : [],
    foreign: record.version < latestVersion ? foreignNames(table, layout, record) : [],
  };
}
