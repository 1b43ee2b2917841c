import { queryOne, queryValue } from "../../tasks/queryOne.js";
import { locateTable } from "../../manager/schema/locateTable.js";
import { readGrantToRead, readPrivilegeRemedy } from "../../manager/schema/privilegeRemedy.js";
import { refusePlan } from "../../manager/schema/planDefault.js";
import { taskTable, type TaskTable } from "../../manager/schema/taskTable.js";
import { serverParameters } from "../../shared/config/parameters.js";
import {
  longCharacterSettings,
  readServerSettings,
  type OnInvalidSetting,
} from "../../shared/config/serverSettings.js";
import type { Entry, TableLocation } from "../../shared/config/types.js";
import type { FileParameters } from "../../shared/config/parameterTable.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { serverOf, sqlState, type Client } from "../../shared/postgres/client.js";
import { hiddenBackendError, ownerSql } from "../../shared/postgres/backendIdentity.js";
import { isPasswordRefused } from "../../shared/postgres/connectionErrors.js";
import { toTaskError } from "../../tasks/taskError.js";
import { PgTaskError } from "../../shared/errors.js";
import { minServerVersion } from "../../shared/postgres/serverLimits.js";
import { insufficientPrivilege } from "../../shared/postgres/sqlStates.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { readControlSettings } from "../../supervisor/controlSettings.js";
import { readTableExistence } from "../../tasks/queries/tableExistence.js";
import {
  findRefusal,
  inspectRoleAndDatabase,
  otherPassword,
  type OwnRolePassword,
  toPgTaskError,
  withConnection,
} from "./roleAndDatabase.js";
import { inspectObjects, isToBeCreated, refusalOf } from "./objects.js";
import {
  checkHome,
  checkRules,
  checkWriters,
  checkZone,
  foundObject,
  type Finding,
  type ObjectState,
} from "../inspection.js";

/** What a server reported about one entry. `error` is set if the inspection failed. */
export interface EntryFindings {
  readonly entry: Entry;
  readonly findings: readonly Finding[];
  /** Paused groups. A null element means that the whole table is paused. */
  readonly paused: readonly (string | null)[];
  /** Schema and name of the table; null if unknown. */
  readonly location: TableLocation | null;
  /** Parameters set by the entry's role, database or server. Each value is the text that the server stores. */
  readonly settings: Readonly<Record<string, string>>;
  /** Warnings about settings that are invalid and therefore ignored. */
  readonly warnings: readonly string[];
  readonly error: PgTaskError | null;
}

const outsideOnly = (entry: Entry, findings: readonly Finding[], error: PgTaskError | null = null): EntryFindings => ({
  entry,
  findings,
  paused: [],
  location: null,
  settings: {},
  warnings: [],
  error,
});

export type ControlFindings = Awaited<ReturnType<typeof inspectControl>>;

/** @throws PgTaskError CONNECTION_FAILED, CONNECTION_REJECTED or SCHEMA_UNSUPPORTED_SERVER */
export async function inspectControl(control: ConnectionTarget, file: FileParameters) {
  return await withConnection(
    control,
    async (client) => {
      const row = await queryOne<{
        version: string;
        number: number;
        roles: boolean;
        databases: boolean;
      }>(
        client,
        `SELECT current_setting('server_version') AS version,
              current_setting('server_version_num')::int AS number,
              rolsuper OR rolcreaterole AS roles,
              rolsuper OR rolcreatedb AS databases
         FROM pg_catalog.pg_roles WHERE rolname = current_user`,
      );
      if (row.number < minServerVersion) {
        const { host, port } = serverOf(client);
        throw new PgTaskError(
          "SCHEMA_UNSUPPORTED_SERVER",
          `expected PostgreSQL 12 or later at ${host}, port ${port}, got ${row.version}`,
        );
      }
      const warnings: string[] = [];
      return {
        version: row.version,
        canCreateRoles: row.roles,
        canCreateDatabases: row.databases,
        settings: await readControlSettings(client, file, collectInvalidSettings(warnings)),
        warnings,
      };
    },
    true,
  );
}

/**
 * @param control null for an entry on another server, which only the entry's own connection reaches
 * @param fileZone `pg_task.zone` of the file
 */
export async function inspectEntry(
  entry: Entry,
  control: { readonly target: ConnectionTarget; readonly findings: ControlFindings } | null,
  fileZone: string,
): Promise<EntryFindings> {
  const findings: Finding[] = [];
  try {
    const known = control === null ? null : await inspectRoleAndDatabase(entry, control.target, control.findings);
    findings.push(...(known?.findings ?? []));
    const password = known?.password ?? "kept";
    const absent = findings.filter(({ object }) => object?.state !== "exists");
    if (absent.length > 0) {
      const refusal = await findRefusal(entry, absent, password);
      return outsideOnly(entry, [...findings, ...describeLater(entry, absent)], refusal);
    }
    const inside = await inspectInside(entry, password, fileZone);
    if (inside === null) {
      const outside = otherPassword(findings, entry.target.user, password, control?.target.user ?? "");
      return outsideOnly(entry, [...outside, ...laterObjects(entry, "unknown", untilPassword(entry))]);
    }
    if (control === null) findings.push(...existingRoleAndDatabase(entry));
    return { ...inside, findings: [...findings, ...inside.findings] };
  } catch (error) {
    return outsideOnly(entry, findings, toPgTaskError(error));
  }
}

/** @returns null if the server refuses the entry's password, and pg-task has created the role */
async function inspectInside(entry: Entry, password: OwnRolePassword, fileZone: string): Promise<EntryFindings | null> {
  try {
    return await withConnection(entry.target, async (client) => {
      try {
        return await inspectDatabase(entry, client, fileZone);
      } catch (error) {
        throw await withPrivilegeRemedy(client, entry, error);
      }
    });
  } catch (error) {
    if (password !== "kept" && isPasswordRefused(error)) return null;
    throw toTaskError(error, taskTable(entry.schema, entry.table));
  }
}

/** Adds to an error about a lacking privilege what grants it. Returns any other error unchanged. */
async function withPrivilegeRemedy(client: Client, { schema, table: name }: Entry, error: unknown): Promise<unknown> {
  if (error instanceof PgTaskError || sqlState(error) !== insufficientPrivilege) return error;
  const table = taskTable(schema, name);
  const denied = toTaskError(error, table);
  const toServe = await readPrivilegeRemedy(client, table).catch(() => null);
  if (toServe === null || !(denied instanceof PgTaskError)) return error;
  const toRead = await readGrantToRead(client, table).catch(() => null);
  const remedy = toRead === null ? toServe : `to only look: ${toRead}; to serve it: ${toServe}`;
  return new PgTaskError(denied.code, `${denied.message}: ${remedy}`, {
    cause: error,
    sqlState: insufficientPrivilege,
    remedy,
  });
}

const untilPassword = ({ target }: Entry): string =>
  `cannot be inspected before the role ${identifier(target.user)} has the entry's password`;

async function inspectDatabase(entry: Entry, client: Client, fileZone: string): Promise<EntryFindings> {
  const warnings: string[] = [];
  const location = await locateTable(client, entry, collectInvalidSettings(warnings));
  const table = taskTable(location.schema, location.table);
  const settings = await readServerSettings(
    client,
    serverParameters.map(({ name }) => name),
  );
  for (const [name, value] of longCharacterSettings(settings)) {
    warnings.push(
      `setting ${name} ${JSON.stringify(value)} on the server is longer than one character, using ${JSON.stringify(value.charAt(0))}`,
    );
  }
  return {
    entry,
    findings: await inspectObjects({ ...entry, ...location }, client),
    paused: await readPausedGroups(table, client),
    location,
    settings: Object.fromEntries(settings),
    warnings: [...warnings, ...(await tableWarnings(entry, table, client))],
    error:
      (await refusalOf(() => refusePlan(client, table, entry.parameters["pg_task.plan"]))) ??
      (await zoneError(entry, table, client, fileZone)) ??
      (await checkOwnBackend(entry, client)),
  };
}

/** What `doctor` finds too. */
async function tableWarnings(entry: Entry, table: TaskTable, client: Client): Promise<string[]> {
  const checks = [
    await checkHome(client, table, entry),
    await checkWriters(client, table),
    ...(await checkExistingRules(client, table)),
  ];
  return checks.flatMap(({ level, text, remedy }) =>
    level === "ok" ? [] : `${table.qualified}: ${text}${remedy === undefined ? "" : `: ${remedy}`}`,
  );
}

async function checkExistingRules(client: Client, table: TaskTable): Promise<Finding[]> {
  if ((await readTableExistence(client, table)) !== "yes") return [];
  try {
    return await checkRules(client, table);
  } catch (error) {
    // The user may lack a privilege on the table, which does not concern the configuration. The command doctor says so.
    if (sqlState(error) === null) throw error;
    return [];
  }
}

async function zoneError(
  { parameters }: Entry,
  table: TaskTable,
  client: Client,
  fileZone: string,
): Promise<PgTaskError | null> {
  const checks = await checkZone(client, table, { parameters, fileZone });
  const problems = checks.flatMap(({ level, text, remedy = "" }) => (level === "ok" ? [] : `${text}; ${remedy}`));
  return problems.length === 0 ? null : new PgTaskError("CONFIG_INVALID", problems.join("; "));
}

/** Returns the error with which sessions would fail because they cannot see their own backends; null if they can. */
async function checkOwnBackend({ target }: Entry, client: Client): Promise<PgTaskError | null> {
  const { rows } = await client.query<{ pid: number; user: string; role: string | null; owner: string | null }>(
    `SELECT pid, session_user AS user, CASE WHEN current_user <> session_user THEN current_user END AS role,
       ${ownerSql("a")} AS owner
     FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) AS a`,
  );
  const [own] = rows;
  return own === undefined || own.owner !== null ? null : hiddenBackendError(target, own);
}

const collectInvalidSettings =
  (warnings: string[]): OnInvalidSetting =>
  (setting, value, used) =>
    warnings.push(`invalid setting ${setting} ${JSON.stringify(value)} on the server, using ${JSON.stringify(used)}`);

/** No connection is opened for this entry, because it would fail in the same way after the same wait. */
export function notInspected(entry: Entry): EntryFindings {
  const why = "the control connection failed";
  const { user, database } = entry.target;
  const outside = [foundObject("role", user, "unknown", why), foundObject("database", database, "unknown", why)];
  return outsideOnly(entry, [...outside, ...laterObjects(entry, "unknown", why)]);
}

/** Only for an entry whose own connection has succeeded, which proves that both exist. */
const existingRoleAndDatabase = ({ target }: Entry): Finding[] => [
  foundObject("role", target.user, "exists"),
  foundObject("database", target.database, "exists"),
];

/** Schema, type and table of an entry whose role or database does not exist yet. */
function describeLater(entry: Entry, absent: readonly Finding[]): Finding[] {
  const isNewDatabase = absent.some((finding) => finding.name === "database" && isToBeCreated(finding));
  if (isNewDatabase && absent.every(isToBeCreated))
    return laterObjects(entry, "would be created", "in the new database");
  const names = absent.map(({ name }) => name).join(" and ");
  const why = `cannot be inspected before the ${names} ${absent.length > 1 ? "exist" : "exists"}`;
  return laterObjects(entry, "unknown", why);
}

const laterObjects = ({ schema, table }: Entry, state: ObjectState, why: string): Finding[] => [
  foundObject("schema", schema, state, why),
  foundObject("type", "state", state, why),
  foundObject("table", table, state, why),
];

async function readPausedGroups({ pauses }: TaskTable, client: Client): Promise<(string | null)[]> {
  // A table with this name may belong to another application and have other columns. The finding about the task table
  // reports such a conflict.
  const isThere = await queryValue<boolean>(
    client,
    `SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute
       WHERE attrelid = pg_catalog.to_regclass($1) AND attname = 'group' AND NOT attisdropped) AS there`,
    [pauses],
  );
  if (!isThere) return [];
  const { rows } = await client.query<{ group: string | null }>(`SELECT DISTINCT "group" FROM ${pauses} ORDER BY 1`);
  return rows.map(({ group }) => group);
}
