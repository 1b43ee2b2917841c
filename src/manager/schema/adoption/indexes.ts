import type { Client } from "../../../shared/postgres/client.js";
import { sqlState } from "../../../shared/postgres/client.js";
import { PgTaskError } from "../../../shared/errors.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import { firstMigration, render } from "../migrations.js";
import { objectName, type TaskTable } from "../taskTable.js";
import { readPartitions, type Layout } from "./layout.js";

/** Up to this size, in bytes, an index is made at once; above, so that nobody who writes waits for it. */
const smallTable = 32 * 2 ** 20;

export interface Index {
  readonly suffix: string;
  /** First key column. */
  readonly column: string;
  /** As the catalog shows it, null for an index on all rows. */
  readonly predicate: string | null;
  /** From the method on. */
  readonly definition: string;
  readonly unique: boolean;
}

/** The queue's own two, and one to find rows by their id. */
export async function ensureIndexes(
  client: Client,
  table: TaskTable,
  { kind }: Pick<Layout, "kind">,
): Promise<void> {
  for (const index of [byId(kind), ...queueIndexes(table)]) {
    await ensureIndex(client, table, { kind }, index);
  }
}

/** On a partitioned table first on each partition: what is large there is built beside who writes. */
export async function ensureIndex(
  client: Client,
  table: TaskTable,
  { kind }: Pick<Layout, "kind">,
  index: Index,
): Promise<void> {
  const relations = [{ name: table.table, schema: table.schema, qualified: table.qualified }];
  if (kind === "p") {
    const partitions = await readPartitions(client, table);
    // The parent's own takes over those that its partitions have.
    relations.unshift(...partitions.filter(({ isLeaf }) => isLeaf));
  }
  for (const relation of relations) await ensureIndexOn(client, relation, index);
}

function byId(kind: string): Index {
  // Of a partitioned table it would have to contain the partition's key.
  const unique = kind !== "p";
  return { suffix: "id_idx", column: "id", predicate: null, definition: "(id)", unique };
}

/** Those of what waits: of due tasks, and of planned ones. */
export function queueIndexes(table: TaskTable): Index[] {
  return [
    { place: "dueIndex", suffix: "due_idx", column: "hash", predicate: "ready" },
    { place: "planIndex", suffix: "plan_idx", column: "plan", predicate: "(NOT ready)" },
  ].map(({ place, ...index }) => {
    const start = `CREATE INDEX :"${place}" ON :"schema".:"table" `;
    const statement = firstMigration.find((each) => each.startsWith(start)) ?? "";
    return { ...index, definition: render(statement.slice(start.length), table), unique: false };
  });
}

async function ensureIndexOn(
  client: Client,
  relation: { readonly name: string; readonly schema: string; readonly qualified: string },
  { suffix, column, predicate, definition, unique }: Index,
): Promise<void> {
  const { rows } = await client.query<{ index: string; valid: boolean }>(
    `SELECT i.indexrelid::regclass::text AS index, i.indisvalid AS valid
     FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
     WHERE i.indrelid = $1::regclass AND a.attname = $2
       AND pg_get_expr(i.indpred, i.indrelid) IS NOT DISTINCT FROM $3
       AND (NOT $4 OR i.indisunique AND i.indnkeyatts = 1)`,
    [relation.qualified, column, predicate, unique],
  );
  if (rows.some(({ valid }) => valid)) return;
  const name = objectName(relation.name, suffix);
  // What an attempt that was cut off has left.
  for (const { index } of rows) {
    if (index.endsWith(identifier(name)) || index.endsWith(name)) {
      await client.query(`DROP INDEX ${index}`);
    }
  }
  const { rows: known } = await client.query<{ large: boolean; taken: boolean }>(
    `SELECT c.relkind = 'r' AND pg_table_size(c.oid) > $2 AS large,
       EXISTS (SELECT FROM pg_class AS o WHERE o.relnamespace = c.relnamespace AND o.relname = $3) AS taken
     FROM pg_class AS c WHERE c.oid = $1::regclass`,
    [relation.qualified, smallTable, name],
  );
  const large = known[0]?.large === true;
  // The extension's index on plan may have the name already: the server finds another.
  const called = known[0]?.taken === true ? "" : identifier(name);
  try {
    await client.query(
      `CREATE ${unique ? "UNIQUE " : ""}INDEX ${large ? "CONCURRENTLY " : ""}${called} ON ${relation.qualified} ${definition}`,
    );
  } catch (error) {
    if (sqlState(error) !== "23505") throw error;
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `expected no two rows of ${relation.qualified} to have the same id: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
}
