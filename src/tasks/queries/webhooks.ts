import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { queryValue } from "../queryOne.js";
import { isoTimeSql } from "../sqlFragments.js";

export interface WebhookStatus {
  readonly name: string;
  /** How many ends of tasks it has not accepted yet. */
  readonly waiting: number;
  /** How many requests in a row have failed. */
  readonly failures: number;
  /** Why the last request that has failed did so, and when. Null if none has. */
  readonly error: string | null;
  readonly failedAt: string | null;
}

/** Empty if this role may not know, or if the table is of an earlier version. */
export async function readWebhooks(client: Queryable, table: TaskTable): Promise<WebhookStatus[]> {
  const { qualifiedOutbox, qualifiedWebhooks } = table;
  const mayRead = await queryValue<boolean | null>(
    client,
    `SELECT pg_catalog.has_table_privilege(pg_catalog.to_regclass($1), 'SELECT')
       AND pg_catalog.has_table_privilege(pg_catalog.to_regclass($2), 'SELECT') AS readable`,
    [qualifiedOutbox, qualifiedWebhooks],
  );
  if (mayRead !== true) return [];
  const { rows } = await client.query<WebhookStatus>(
    `SELECT w.name, w.failures, w.error, ${isoTimeSql("w.failed")} AS "failedAt",
       (SELECT pg_catalog.count(*)::pg_catalog.float8 FROM ${qualifiedOutbox} AS o WHERE o.webhook OPERATOR(pg_catalog.=) w.name) AS waiting
     FROM ${qualifiedWebhooks} AS w ORDER BY w.name`,
  );
  return rows;
}
