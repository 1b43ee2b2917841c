import { describeKind, refuseConflictingNames, refuseObstacles } from "../../manager/schema/adoption/obstacles.js";
import { describeMissingColumns } from "../../manager/schema/adoption/addColumns.js";
import { describeOtherPlace, latestVersion, missingObjects } from "../../manager/schema/migrations.js";
import type { TableRecord } from "../../manager/schema/columns.js";
import { takenUserFunctions } from "../../manager/schema/functions/ensureUserFunctions.js";
import { requireNotMoved } from "../../manager/schema/movedTable.js";
import { findOrigin } from "../../manager/schema/moveObjects.js";
import {
  readChangeRemedy,
  readGrantToRead,
  readLackingToCreate,
  readPrivilegeRemedy,
} from "../../manager/schema/privilegeRemedy.js";
import { missingStates } from "../../manager/schema/stateType.js";
import { taskTable, type TaskTable } from "../../manager/schema/taskTable.js";
import { inspectUsers } from "../../manager/schema/users.js";
import type { Entry } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import {
  readTableState,
  type TableState,
  checkWaiting,
  foundObject,
  type Finding,
  type ObjectState,
} from "../inspection.js";
import { queryOne } from "../../tasks/queryOne.js";
import { identifier } from "../../shared/postgres/quoting.js";

export async function inspectObjects(entry: Entry, client: Client): Promise<Finding[]> {
  const { schema, table, create, target } = entry;
  const row = await queryOne<{
    schema: boolean;
    type: boolean;
    kind: string | null;
    inDatabase: boolean;
    inSchema: boolean;
  }>(
    client,
    `SELECT n.oid IS NOT NULL AS schema,
            EXISTS (SELECT FROM pg_catalog.pg_type
                     WHERE typnamespace = n.oid AND typname = 'state') AS type,
            (SELECT relkind::text FROM pg_catalog.pg_class
              WHERE relnamespace = n.oid AND relname = $2) AS kind,
            pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') AS "inDatabase",
            coalesce(pg_catalog.has_schema_privilege(n.oid, 'CREATE'), true) AS "inSchema"
       FROM (SELECT) AS one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = $1`,
    [schema, table],
  );
  const { user, database } = target;
  const reserved = schema.startsWith("pg_");
  const allowed = (row.schema || row.inDatabase) && row.inSchema && !reserved;
  const { lacking } = await readLackingToCreate(client, { schema });
  const grant = lacking === null ? "" : `: GRANT ${lacking} TO ${identifier(user)}`;
  const right = reserved
    ? 'schema names that begin with "pg_" are reserved'
    : row.schema
      ? `the user ${user} may not create in the schema ${schema}${grant}`
      : `the user ${user} may not create a schema in the database ${database}${grant}`;
  const permission = { allowed, right };
  const moved = row.kind === null ? await inspectMoved(client, entry) : null;
  if (moved !== null) return [moved];
  const names = row.kind === null ? await inspectNames(client, entry) : { type: null, table: null };
  return [
    describeObject("schema", schema, row.schema, create, permission),
    ...(row.kind === null
      ? [
          names.type === null
            ? describeObject("type", "state", row.type, create, permission)
            : foundObject("type", "state", "not allowed", names.type),
          names.table === null
            ? describeObject("table", table, false, create, permission)
            : foundObject("table", table, "not allowed", names.table),
        ]
      : [...(await inspectStateType(client, entry)), await inspectTable(client, entry, row.kind)]),
  ];
}

export const isToBeCreated = ({ object }: Finding): boolean => object?.state === "would be created";

export function describeObject(
  kind: Parameters<typeof foundObject>[0],
  name: string,
  exists: boolean,
  create: boolean,
  permission: {
    readonly allowed: boolean;
    readonly right: string;
    readonly missing?: string | undefined;
  },
): Finding {
  if (exists) return foundObject(kind, name, "exists");
  if (!create) return foundObject(kind, name, "missing", permission.missing ?? 'the entry says "create": false');
  if (permission.allowed) return foundObject(kind, name, "would be created");
  return foundObject(kind, name, "not allowed", `missing, and ${permission.right}`);
}

/** @param kind `relkind` in pg_class */
async function inspectTable(client: Client, entry: Entry, kind: string): Promise<Finding> {
  const { schema, table: name, create } = entry;
  const found = (state: ObjectState, why?: string): Finding => foundObject("table", name, state, why);
  const refused = (why: string): Finding => found("not allowed", why);
  if (kind !== "r" && kind !== "p") {
    return refused(`the name belongs to ${describeKind(kind)}, which cannot be adopted`);
  }
  const table = taskTable(schema, name);
  const state = await readTableState(client, table);
  const { version, lost } = state;
  if (version > latestVersion) return refused("created by a later pg-task");
  if (lost.length > 0) {
    return found("incomplete", `${describeMissingColumns(lost)}; pg-task doctor names the statements that restore it`);
  }
  const upToDate = version === latestVersion && (await missingObjects(client, table)).length === 0;
  const users = await inspectUsers(client, table, entry);
  if (users.refusal !== null) return refused(users.refusal);
  const reasons = [...(users.change === null ? [] : [users.change]), ...(await readReasons(client, table, state))];
  const asOwner = await readPrivilegeRemedy(client, table);
  const notOwned = `${await howToLook(client, table)}the entry's user needs the privileges of its owner: ${asOwner ?? ""}`;
  // Nothing has to be changed, and the needed privileges may have been granted one by one.
  if (upToDate) return found("exists", [...reasons, ...(asOwner === null ? [] : [notOwned])].join("; "));
  const moved = version === 0 ? await findOrigin(client, table) : null;
  const why =
    create && asOwner !== null ? notOwned : await whyUnchangeable(client, table, create, moved === null ? state : null);
  if (why !== null) return refused(why);
  if (version === latestVersion) return found("exists", reasons.join("; "));
  return describeChange(name, version, create, moved);
}

function describeChange(name: string, version: number, create: boolean, moved: TaskTable | null): Finding {
  const found = (state: ObjectState, why: string): Finding => foundObject("table", name, state, why);
  if (moved !== null) return found("exists", `was moved from ${moved.logName}, its objects would follow it`);
  const origin = version === 0 ? "not created by pg-task" : "created by an earlier pg-task";
  if (!create) return found("missing", `${origin}, and the entry has "create": false`);
  return found("exists", `${origin}, would be ${version === 0 ? "adopted" : "migrated"}`);
}

/** Which privileges the entry's user lacks to only look, if any, as the beginning of what it needs to serve. */
async function howToLook(client: Client, table: TaskTable): Promise<string> {
  const grant = await readGrantToRead(client, table);
  return grant === null ? "" : `to only look: ${grant}; to serve it, `;
}

/** @param record null if the table was moved here from another place */
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
async function inspectMoved(client: Client, { schema, table: name }: Entry): Promise<Finding | null> {
  const why = await refusalReason(() => requireNotMoved(client, taskTable(schema, name)));
  return why === null ? null : foundObject("table", name, "not allowed", why);
}

/** Why `start` could not create the type, and the table; null if it could. */
async function inspectNames(
  client: Client,
  { schema, table: name }: Entry,
): Promise<{ readonly type: string | null; readonly table: string | null }> {
  const table = taskTable(schema, name);
  return {
    type: await refusalReason(() => missingStates(client, table)),
    table: await refusalReason(() => refuseConflictingNames(client, table)),
  };
}

const refusalReason = async (action: () => Promise<unknown>): Promise<string | null> =>
  (await refusalOf(action))?.message ?? null;

export async function refusalOf(action: () => Promise<unknown>): Promise<PgTaskError | null> {
  try {
    await action();
    return null;
  } catch (error) {
    if (error instanceof PgTaskError) return error;
    throw error;
  }
}

async function inspectStateType(client: Client, { schema, table }: Entry): Promise<Finding[]> {
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
    own ? foundObject("type", "state", "exists") : foundObject("type", type, "exists", "type of the column state"),
  );
}

/** As `check` says it; null if `start` could create or adopt the table, or if the entry forbids it. */
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
  const { text, object } = await inspectTable(client, entry, relation.kind);
  return object?.state === "not allowed" || object?.state === "incomplete" ? text : null;
}
