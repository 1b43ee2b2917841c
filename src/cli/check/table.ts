import { refuseObstacles } from "../../manager/schema/adoption/obstacles.js";
import { lostColumns, lostText } from "../../manager/schema/adoption/addColumns.js";
import { kindOf } from "../../manager/schema/adoption/relationKinds.js";
import { readLayout } from "../../manager/schema/adoption/layout.js";
import { refuseConflictingColumns } from "../../manager/schema/adoption/conflictingColumns.js";
import { appliedVersion, latestVersion, missingObjects } from "../../manager/schema/migrations.js";
import { lackingStates } from "../../manager/schema/stateType.js";
import { taskTable } from "../../manager/schema/taskTable.js";
import type { Entry } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import type { Finding } from "./server.js";

/**
 * What becomes of a relation that has the table's name already.
 *
 * @param kind as in pg_class
 */
export async function inspectTable(
  client: Client,
  { schema, table: name, create }: Entry,
  kind: string,
): Promise<Finding> {
  const found = { what: "table", name } as const;
  const refused = (why: string): Finding => ({ ...found, state: "not allowed", why });
  if (kind !== "r" && kind !== "p") {
    return refused(`what has this name is ${kindOf(kind)}, which is not adopted`);
  }
  const table = taskTable(schema, name);
  const version = await appliedVersion(client, table);
  if (version > latestVersion) return refused("it was made by a later pg-task");
  const lost = version === latestVersion ? lostColumns(await readLayout(client, table)) : [];
  if (lost.length > 0) return refused(lostText(lost));
  const upToDate = version === latestVersion && (await missingObjects(client, table)).length === 0;
  if (upToDate) return { ...found, state: "exists" };
  const why = await refusal(async () => {
    if (version === 0) await refuseObstacles(client, table, await readLayout(client, table));
    await refuseConflictingColumns(client, table);
  });
  if (why !== null) return refused(why);
  if (version === latestVersion) return { ...found, state: "exists" };
  const lacks = version === 0 ? "it was not made by pg-task" : "an earlier pg-task made it";
  if (!create)
    return { ...found, state: "missing", why: `${lacks}, the entry says "create": false` };
  const change = version === 0 ? "adopted" : "brought up to date";
  return { ...found, state: "exists", why: `${lacks}, it would be ${change}` };
}

/** What of a table and its type that are not there yet `start` would refuse, by what they are. */
export async function inspectNames(
  client: Client,
  { schema, table: name }: Entry,
): Promise<{ readonly type: string | null; readonly table: string | null }> {
  const table = taskTable(schema, name);
  return {
    type: await refusal(() => lackingStates(client, table)),
    table: await refusal(() => refuseConflictingColumns(client, table)),
  };
}

/** Why the work was refused, null when it was not. */
async function refusal(work: () => Promise<unknown>): Promise<string | null> {
  try {
    await work();
    return null;
  } catch (error) {
    if (!(error instanceof PgTaskError)) throw error;
    return error.message;
  }
}

/** What the column state of a relation that is there is of; nothing where it has no such column. */
export async function inspectStateType(
  client: Client,
  { schema, table }: Entry,
): Promise<Finding[]> {
  const { rows } = await client.query<{ type: string; own: boolean }>(
    `SELECT pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       t.typnamespace = c.relnamespace AND t.typname = 'state' AS own
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'state' AND NOT a.attisdropped
     JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
     WHERE n.nspname = $1 AND c.relname = $2`,
    [schema, table],
  );
  return rows.map(({ type, own }) =>
    own
      ? { what: "type", name: "state", state: "exists" }
      : { what: "type", name: type, state: "exists", why: "the table's column state is of it" },
  );
}
