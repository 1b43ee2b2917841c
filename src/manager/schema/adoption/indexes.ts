import type { Client } from "../../../shared/postgres/client.js";
import { sqlState } from "../../../shared/postgres/client.js";
import { errorMessage, PgTaskError } from "../../../shared/errors.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import { maxBlockingBytes } from "../keyIndex.js";
import { statements, render } from "../migrations.js";
import { objectName, type TaskTable } from "../taskTable.js";
import { readPartitions, type Layout } from "./layout.js";

interface Index {
  readonly suffix: string;
  readonly column: string;
  /** The predicate as the catalog shows it; null for an index on all rows. */
  readonly predicate: string | null;
  readonly definition: string;
  readonly unique?: boolean;
}

export async function ensureIndexes(client: Client, table: TaskTable, { kind }: Pick<Layout, "kind">): Promise<void> {
  for (const index of [idIndex(kind), ...queueIndexes(table), keepIndex(table)]) {
    await ensureIndex(client, table, index);
  }
}

/** First on each partition, because CREATE INDEX CONCURRENTLY does not work on a partitioned table. */
export async function ensureIndex(client: Client, table: TaskTable, index: Index): Promise<void> {
  const leaves = (await readPartitions(client, table)).filter(({ isLeaf }) => isLeaf);
  for (const relation of [...leaves, { name: table.table, qualified: table.qualified }])
    await ensureIndexOn(client, relation, index);
}

function idIndex(kind: string): Index {
  // A unique index of a partitioned table would have to include the partition key, so the index is not unique there.
  const unique = kind !== "p";
  return { suffix: "id_idx", column: "id", predicate: null, definition: "(id)", unique };
}

export function queueIndexes(table: TaskTable): Index[] {
  return [
    initialIndex(table, "dueIndex", "due_idx", "hash", "ready"),
    initialIndex(table, "planIndex", "plan_idx", "plan", "(NOT ready)"),
  ];
}

/** The index of the waiting tasks whose predecessors have not been looked up yet. */
export const holdIndex: Index = {
  suffix: "hold_idx",
  column: "id",
  predicate: "((wait > 0) AND (ready IS NOT NULL))",
  definition: "(id) WHERE wait > 0 AND ready IS NOT NULL",
};

/** The waiting tasks with `alone`. */
export const aloneIndex: Index = {
  suffix: "alone_idx",
  column: "plan",
  predicate: "((alone IS NOT NULL) AND (ready IS NOT NULL))",
  definition: "(plan) WHERE alone IS NOT NULL AND ready IS NOT NULL",
};

/** Tells the waiting rows from the others, and puts the latest claimed ones first. Ends of runs write neither. */
export const schedulesIndex: Index = {
  suffix: "schedules_idx",
  column: "ready",
  predicate: "COALESCE(((rule IS NOT NULL) OR (repeat > '00:00:00'::interval)), false)",
  definition: "(ready, take) WHERE coalesce(rule IS NOT NULL OR repeat > interval '0', false)",
};

const keepIndex = (table: TaskTable): Index =>
  initialIndex(table, "keepIndex", "keep_idx", "id", "(keep > '00:00:00'::interval)");

function initialIndex(
  table: TaskTable,
  key: keyof TaskTable,
  suffix: string,
  column: string,
  predicate: string,
): Index {
  const start = `CREATE INDEX :"${key}" ON :"schema".:"table" `;
  const statement = statements.find((each) => each.startsWith(start)) ?? "";
  const definition = render(statement.slice(start.length), table);
  return { suffix, column, predicate, definition };
}

async function ensureIndexOn(
  client: Client,
  relation: { readonly name: string; readonly qualified: string },
  { suffix, column, predicate, definition, unique = false }: Index,
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
  // These indexes were left invalid by an interrupted attempt.
  for (const { index } of rows) {
    if (index.endsWith(identifier(name)) || index.endsWith(name)) {
      await client.query(`DROP INDEX ${index}`);
    }
  }
  const { rows: relations } = await client.query<{ large: boolean; taken: boolean }>(
    `SELECT c.relkind = 'r' AND pg_table_size(c.oid) > $2 AS large,
       EXISTS (SELECT FROM pg_class AS o WHERE o.relnamespace = c.relnamespace AND o.relname = $3) AS taken
     FROM pg_class AS c WHERE c.oid = $1::regclass`,
    [relation.qualified, maxBlockingBytes, name],
  );
  const large = relations[0]?.large === true;
  // The pg_task extension's index on `plan` may already have this name. In this case the server chooses a name.
  const indexName = relations[0]?.taken === true ? "" : identifier(name);
  try {
    await client.query(
      `CREATE ${unique ? "UNIQUE " : ""}INDEX ${large ? "CONCURRENTLY " : ""}${indexName} ON ${relation.qualified} ${definition}`,
    );
  } catch (error) {
    if (sqlState(error) !== "23505") throw error;
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `expected unique ids in ${relation.qualified}: ${errorMessage(error)}`,
      { cause: error },
    );
  }
}
