import { describeKind, refuseConflictingNames, refuseObstacles } from "../../manager/schema/adoption/obstacles.js";
import { describeMissingColumns } from "../../manager/schema/adoption/addColumns.js";
import { describeOtherPlace, latestVersion, missingObjects } from "../../manager/schema/migrations.js";
import type { TableRecord } from "../../manager/schema/columns.js";
import { takenUserFunctions } from "../../manager/schema/ensureUserFunctions.js";
import { requireNotMoved } from "../../manager/schema/movedTable.js";
import { findOrigin } from "../../manager/schema/moveObjects.js";
import { readChangeRemedy, readGrantToRead, readPrivilegeRemedy } from "../../manager/schema/privilegeRemedy.js";
import { missingStates } from "../../manager/schema/stateType.js";
import { taskTable, type TaskTable } from "../../manager/schema/taskTable.js";
import type { Entry } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { readTableState, type TableState, checkWaiting } from "../inspection.js";

/** Whether an object that an entry needs exists. */
export interface Finding {
  readonly what: "role" | "database" | "schema" | "type" | "table";
  readonly name: string;
  readonly state: "exists" | "would be created" | "missing" | "incomplete" | "not allowed" | "unknown";
  /** The reason for the state, if the state needs an explanation. */
  readonly why?: string;
}

/** @param kind `relkind` in pg_class */
export async function inspectTable(
  client: Client,
  { schema, table: name, create }: Entry,
  kind: string,
): Promise<Finding> {
  const found = { what: "table", name } as const;
  const refused = (why: string): Finding => ({ ...found, state: "not allowed", why });
  if (kind !== "r" && kind !== "p") {
    return refused(`the name belongs to ${describeKind(kind)}, which cannot be adopted`);
  }
  const table = taskTable(schema, name);
  const state = await readTableState(client, table);
  const { version, lost } = state;
  if (version > latestVersion) return refused("created by a later pg-task");
  if (lost.length > 0) {
    const why = `${describeMissingColumns(lost)}; pg-task doctor names the statements that restore it`;
    return { ...found, state: "incomplete", why };
  }
  const upToDate = version === latestVersion && (await missingObjects(client, table)).length === 0;
  const reasons = await readReasons(client, table, state);
  const reason = reasons.length === 0 ? {} : { why: reasons.join("; ") };
  const exists: Finding = { ...found, state: "exists", ...reason };
  const asOwner = await readPrivilegeRemedy(client, table);
  const notOwned = `${await howToLook(client, table)}the entry's user needs the privileges of its owner: ${asOwner ?? ""}`;
  // Nothing has to be changed, and the needed privileges may have been granted one by one.
  if (upToDate) return asOwner === null ? exists : { ...exists, why: [...reasons, notOwned].join("; ") };
  const moved = version === 0 ? await findOrigin(client, table) : null;
  const why =
    create && asOwner !== null ? notOwned : await whyUnchangeable(client, table, create, moved === null ? state : null);
  if (why !== null) return refused(why);
  return version === latestVersion ? exists : { ...found, ...describeChange(version, create, moved) };
}

/** Which privileges the entry's user lacks to only look, if any, as the beginning of what it needs to serve. */
async function howToLook(client: Client, table: TaskTable): Promise<string> {
  const grant = await readGrantToRead(client, table);
  return grant === null ? "" : `to only look: ${grant}; to serve it, `;
}

function describeChange(version: number, create: boolean, moved: TaskTable | null): Pick<Finding, "state" | "why"> {
  if (moved !== null) return { state: "exists", why: `was moved from ${moved.logName}, its objects would follow it` };
  const origin = version === 0 ? "not created by pg-task" : "created by an earlier pg-task";
  if (!create) return { state: "missing", why: `${origin}, and the entry has "create": false` };
  return { state: "exists", why: `${origin}, would be ${version === 0 ? "adopted" : "migrated"}` };
}

/**
 * Returns why `start` could not adopt or migrate a table that its user owns, or restore its objects; null if it could.
 *
 * @param record null if the table was moved here from another place
 */
async function whyUnchangeable(
  client: Client,
  table: TaskTable,
  create: boolean,
  record: TableRecord | null,
): Promise<string | null> {
  const why = await refusalReason(() =>
    record === null ? refuseConflictingNames(client, table) : refuseObstacles(client, table, record),
  );
  if (why !== null || !create) return why;
  const grant = await readChangeRemedy(client, table);
  return grant === null ? null : `the entry's user may not create what belongs to it: ${grant}`;
}

async function readReasons(client: Client, table: TaskTable, { version, isElsewhere }: TableState): Promise<string[]> {
  const reasons = isElsewhere ? [`${describeOtherPlace(table)}; pg-task start replaces them`] : [];
  for (const { purpose, signature } of await takenUserFunctions(client, table))
    reasons.push(`off: ${purpose}, because another function is called ${signature}`);
  const waiting = await checkWaiting(client, table, version > 0);
  return waiting === null ? reasons : [...reasons, waiting.text];
}

/** A table that has another name or schema now makes `start` wait. */
export async function inspectMoved(client: Client, { schema, table: name }: Entry): Promise<Finding | null> {
  const why = await refusalReason(() => requireNotMoved(client, taskTable(schema, name)));
  return why === null ? null : { what: "table", name, state: "not allowed", why };
}

/** Why `start` could not create the type, and the table; null if it could. */
export async function inspectNames(
  client: Client,
  { schema, table: name }: Entry,
): Promise<{ readonly type: string | null; readonly table: string | null }> {
  const table = taskTable(schema, name);
  return {
    type: await refusalReason(() => missingStates(client, table)),
    table: await refusalReason(() => refuseConflictingNames(client, table)),
  };
}

async function refusalReason(action: () => Promise<unknown>): Promise<string | null> {
  try {
    await action();
    return null;
  } catch (error) {
    if (!(error instanceof PgTaskError)) throw error;
    return error.message;
  }
}

export async function inspectStateType(client: Client, { schema, table }: Entry): Promise<Finding[]> {
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
      : { what: "type", name: type, state: "exists", why: "type of the column state" },
  );
}

/**
 * Why `start` could not create or adopt the entry's table, as `check` says it; null if it could, or if the entry
 * forbids it.
 */
export async function whatIsInTheWay(client: Client, entry: Entry): Promise<string | null> {
  const { rows } = await client.query<{ kind: string }>(
    `SELECT c.relkind::text AS kind FROM pg_catalog.pg_class AS c
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`,
    [entry.schema, entry.table],
  );
  const [relation] = rows;
  if (relation === undefined) {
    const { type, table } = await inspectNames(client, entry);
    return type ?? table;
  }
  const { state, why = null } = await inspectTable(client, entry, relation.kind);
  return state === "not allowed" || state === "incomplete" ? why : null;
}
