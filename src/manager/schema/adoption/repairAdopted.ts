import type { Entry } from "../../../shared/config/types.js";
import type { Client } from "../../../shared/postgres/client.js";
import { PgTaskError } from "../../../shared/errors.js";
import type { TaskTable } from "../taskTable.js";
import { ensureFillFunction, fillCondition } from "./fillFunction.js";
import { readLayout } from "./layout.js";
import { missingTriggers } from "./triggers.js";

/**
 * Brings an adopted table up to date at each start, in the caller's transaction: determines the type of `state`, and
 * updates the fill function and the triggers of new partitions.
 *
 * @throws PgTaskError SCHEMA_MISSING if a trigger is missing and the entry says `"create": false`.
 */
export async function repairAdopted(client: Client, table: TaskTable, entry: Entry): Promise<void> {
  const found = await readSummary(client, table);
  if (found === null) return;
  if (found.stateType !== null) table.stateType = found.stateType;
  if (found.kind !== "p" && !found.hasFillTrigger) return;
  const layout = await readLayout(client, table);
  const condition = found.hasFillTrigger ? fillCondition(layout, entry.parameters) : null;
  if (condition !== null && entry.create) await ensureFillFunction(client, table, layout, entry.parameters);
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

export async function hasNewPartitions(client: Client, table: TaskTable, { parameters }: Entry): Promise<boolean> {
  const found = await readSummary(client, table);
  if (found?.kind !== "p") return false;
  const layout = await readLayout(client, table);
  const condition = found.hasFillTrigger ? fillCondition(layout, parameters) : null;
  return (await missingTriggers(client, table, layout, condition)).length > 0;
}

interface Summary {
  readonly kind: string;
  /** Whether the table or a partition has the fill trigger, which completes the rows of an adopted table. */
  readonly hasFillTrigger: boolean;
  /** Type of the column `state`, quoted. Null if it is the enum `state` of the table's schema. */
  readonly stateType: string | null;
}

async function readSummary(client: Client, table: TaskTable): Promise<Summary | null> {
  const { rows } = await client.query<Summary>(
    `SELECT c.relkind AS kind,
       EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgname = $2
         AND t.tgrelid IN (SELECT c.oid UNION ALL SELECT relid FROM pg_partition_tree(c.oid))) AS "hasFillTrigger",
       CASE WHEN a.atttypid IS DISTINCT FROM to_regtype($3) THEN format_type(a.atttypid, a.atttypmod) END AS "stateType"
     FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'state'
     WHERE c.oid = $1::regclass`,
    [table.qualified, table.fill, table.stateType],
  );
  return rows[0] ?? null;
}
