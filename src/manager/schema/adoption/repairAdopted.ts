import type { Entry } from "../../../shared/config/types.js";
import type { Client } from "../../../shared/postgres/client.js";
import { PgTaskError } from "../../../shared/errors.js";
import type { TaskTable } from "../taskTable.js";
import { ensureFillFunction, fillCondition } from "./fillFunction.js";
import { readLayout } from "./layout.js";
import { missingTriggers } from "./triggers.js";

/**
 * What an adopted table needs at each start, inside the caller's transaction: its own type of state,
 * the file's parameters in its fill function, and the triggers of partitions that have come since.
 *
 * @throws PgTaskError SCHEMA_MISSING where nothing is to be created.
 */
export async function repairAdopted(client: Client, table: TaskTable, entry: Entry): Promise<void> {
  const found = await look(client, table);
  if (found === null) return;
  if (found.state !== null) table.stateType = found.state;
  if (found.kind !== "p" && !found.filled) return;
  const layout = await readLayout(client, table);
  const condition = found.filled ? fillCondition(layout, entry.parameters) : null;
  if (condition !== null && entry.create) {
    await ensureFillFunction(client, table, layout, entry.parameters);
  }
  if (found.kind !== "p") return;
  for (const { relation, trigger } of await missingTriggers(client, table, layout, condition)) {
    if (!entry.create) {
      throw new PgTaskError(
        "SCHEMA_MISSING",
        `partition ${relation} lacks the trigger ${trigger.name}, and its entry says "create": false`,
      );
    }
    await client.query(trigger.statement(relation));
  }
}

/** Whether partitions have come that lack triggers; changes and locks nothing. */
export async function hasNewPartitions(
  client: Client,
  table: TaskTable,
  { parameters }: Entry,
): Promise<boolean> {
  const found = await look(client, table);
  if (found?.kind !== "p") return false;
  const layout = await readLayout(client, table);
  const condition = found.filled ? fillCondition(layout, parameters) : null;
  return (await missingTriggers(client, table, layout, condition)).length > 0;
}

interface Found {
  /** As in pg_class. */
  readonly kind: string;
  /** Whether it has the fill trigger, somewhere. */
  readonly filled: boolean;
  /** The type of its state, quoted, where that is another than the schema's own. */
  readonly state: string | null;
}

async function look(client: Client, table: TaskTable): Promise<Found | null> {
  const { rows } = await client.query<Found>(
    `SELECT c.relkind AS kind,
       EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgname = $2
         AND t.tgrelid IN (SELECT c.oid UNION ALL SELECT relid FROM pg_partition_tree(c.oid))) AS filled,
       CASE WHEN a.atttypid IS DISTINCT FROM to_regtype($3) THEN format_type(a.atttypid, a.atttypmod) END AS state
     FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'state'
     WHERE c.oid = $1::regclass`,
    [table.qualified, table.fill, table.stateType],
  );
  return rows[0] ?? null;
}
