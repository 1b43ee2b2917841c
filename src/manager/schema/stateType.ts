import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { literal } from "../../shared/postgres/quoting.js";
import type { FoundColumn } from "./adoption/layout.js";
import type { TaskTable } from "./taskTable.js";

/** Every state of a task. */
export const states = ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"] as const;

/**
 * Makes the enum of the column state where the schema has none; its tables share it. States that it
 * lacks are added.
 *
 * @throws PgTaskError SCHEMA_INCOMPATIBLE when the name is taken by something else.
 */
export async function ensureStateType(client: Client, table: TaskTable): Promise<void> {
  const lacking = await lackingStates(client, table);
  if (lacking !== null) return await addStates(client, table.stateType, lacking);
  await client.query(`CREATE TYPE ${table.stateType} AS ENUM (${states.map(literal).join(", ")})`);
}

/**
 * States that the schema's enum lacks, null where it has none.
 *
 * @throws PgTaskError SCHEMA_INCOMPATIBLE when the name is taken by something else.
 */
export async function lackingStates(client: Client, table: TaskTable): Promise<string[] | null> {
  const { rows } = await client.query<{ kind: string; labels: string[] }>(
    `SELECT t.typtype AS kind, ARRAY(
       SELECT e.enumlabel::text FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid) AS labels
     FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
     WHERE n.nspname = $1 AND t.typname = 'state'`,
    [table.schema],
  );
  const [found] = rows;
  // A table is a type as well.
  if (found === undefined && table.table !== "state") return null;
  if (found === undefined) {
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `expected another name than ${table.qualified}, which is that of the type of its column state: give another "table"`,
    );
  }
  const lacking = states.filter((state) => !found.labels.includes(state));
  if (found.kind === "e" && !lacking.includes("PLAN")) return lacking;
  throw new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    found.kind === "e"
      ? `expected the enum ${table.stateType} to have ${states.join(", ")}, got one without ${lacking.join(", ")}: add them with ALTER TYPE, or give another "schema"`
      : `expected ${table.stateType} to be an enum of ${states.join(", ")}, got another type or a table of that name: give another "schema"`,
  );
}

/** Adds the states that the enum of an existing column lacks. */
export async function addLabels(client: Client, state: FoundColumn | undefined): Promise<void> {
  if (state?.kind !== "e") return;
  const { labels } = state;
  await addStates(
    client,
    state.baseType,
    states.filter((each) => !labels.includes(each)),
  );
}

async function addStates(client: Client, type: string, lacking: readonly string[]): Promise<void> {
  for (const state of lacking) {
    await client.query(`ALTER TYPE ${type} ADD VALUE IF NOT EXISTS ${literal(state)}`);
  }
}
