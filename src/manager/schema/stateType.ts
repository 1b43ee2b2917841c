import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { taskStates } from "../../shared/taskState.js";
import type { FoundColumn } from "./adoption/layout.js";
import type { TaskTable } from "./taskTable.js";
import { isTrustedOwner } from "./trustedOwner.sql.js";

/** All tables of a schema share the enum type of the column `state`. */
export async function ensureStateType(client: Client, table: TaskTable): Promise<void> {
  const missing = await missingStates(client, table);
  if (missing !== null) return await addStates(client, table.stateType, missing);
  await client.query(`CREATE TYPE ${table.stateType} AS ENUM (${taskStates.map(literal).join(", ")})`);
}

/**
 * Null if there is no such enum.
 *
 * @throws PgTaskError SCHEMA_INCOMPATIBLE if its name is taken, or if it belongs to a role that the manager does not
 *   trust: whoever owns a type can create casts, which are functions that run as whoever reads a state as text
 */
export async function missingStates(client: Client, table: TaskTable): Promise<string[] | null> {
  const { rows } = await client.query<{ kind: string; labels: string[]; owner: string; trusted: boolean }>(
    `SELECT t.typtype AS kind, ARRAY(
       SELECT e.enumlabel::text FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid) AS labels,
       pg_catalog.pg_get_userbyid(t.typowner) AS owner, t.typowner = n.nspowner OR ${isTrustedOwner("t.typowner", "$2")} AS trusted
     FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
     WHERE n.nspname = $1 AND t.typname = 'state'`,
    [table.schema, table.qualified],
  );
  const [found] = rows;
  // A table named `state` also occupies `state` as a type name.
  if (found === undefined && table.table !== "state") return null;
  if (found === undefined) {
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `the type of the column state already has the name ${table.qualified}: give another "table"`,
    );
  }
  if (!found.trusted)
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `the type ${table.stateType} belongs to role ${identifier(found.owner)}, which could let others run its functions: give another "schema", or give the type to the owner of the schema`,
    );
  const missing = taskStates.filter((state) => !found.labels.includes(state));
  if (found.kind === "e" && !missing.includes("PLAN")) return missing;
  throw new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    found.kind === "e"
      ? `expected the enum ${table.stateType} to have ${taskStates.join(", ")}, got one without ${missing.join(", ")}: add them with ALTER TYPE, or give another "schema"`
      : `expected ${table.stateType} to be an enum of ${taskStates.join(", ")}, got another type or a table of that name: give another "schema"`,
  );
}

/** Adds missing states if the type of an existing column `state` is an enum. */
export async function addMissingStates(client: Client, state: FoundColumn | undefined): Promise<void> {
  if (state?.kind !== "e") return;
  const { labels } = state;
  await addStates(
    client,
    state.baseType,
    taskStates.filter((each) => !labels.includes(each)),
  );
}

async function addStates(client: Client, type: string, missing: readonly string[]): Promise<void> {
  for (const state of missing) {
    await client.query(`ALTER TYPE ${type} ADD VALUE IF NOT EXISTS ${literal(state)}`);
  }
}
