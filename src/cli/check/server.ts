import { locateTable } from "../../manager/schema/locateTable.js";
import { refusePlan } from "../../manager/schema/planDefault.js";
import { taskTable } from "../../manager/schema/taskTable.js";
import { serverParameters } from "../../shared/config/parameters.js";
import { settingsMade, type RefuseSetting } from "../../shared/config/serverSettings.js";
import type {
  ConnectionTarget,
  Entry,
  FileParameters,
  TableLocation,
} from "../../shared/config/types.js";
import { connectClient, wasAskedForPassword, type Client } from "../../shared/postgres/client.js";
import { explainFailure } from "../support/explainFailure.js";
import { PgTaskError } from "../../shared/errors.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { readControlSettings, type ControlSettings } from "../../supervisor/controlSettings.js";
import { inspectNames, inspectStateType, inspectTable } from "./table.js";

/** How one of the things an entry needs is found on its server. */
export interface Finding {
  readonly what: "role" | "database" | "schema" | "type" | "table";
  readonly name: string;
  readonly state: "exists" | "would be created" | "missing" | "not allowed" | "unknown";
  /** Why it is so, where that needs saying. */
  readonly why?: string;
}

/** What a server says about one entry; `error` when it could not be asked to the end. */
export interface EntryFindings {
  readonly findings: readonly Finding[];
  /** Names of the groups that are paused, null for the whole table. */
  readonly paused: readonly (string | null)[];
  /** Where the tasks are; null when nobody could be asked. */
  readonly place: TableLocation | null;
  /** What its role, database and server have set, as they have it. */
  readonly settings: Readonly<Record<string, string>>;
  /** Settings that make no sense and are passed over. */
  readonly warnings: readonly string[];
  readonly error: PgTaskError | null;
}

/** What is found of an entry whose server was not asked about its inside. */
const outside = { paused: [], place: null, settings: {}, warnings: [], error: null } as const;

/** What the control connection tells about its server and itself. */
export interface ControlFindings {
  readonly version: string;
  readonly mayCreateRoles: boolean;
  readonly mayCreateDatabases: boolean;
  /** Whether the server asked for its password. */
  readonly askedForPassword: boolean;
  /** What the control database has set of the supervisor's own parameters. */
  readonly settings: ControlSettings;
  readonly warnings: readonly string[];
}

const applicationName = "pg_task check";
const oldestVersion = 120_000;

/** Opens a connection, works on it and ends it. @throws PgTaskError as connect does. */
async function withConnection<T>(
  target: ConnectionTarget,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const client = await connectClient(target, {
    applicationName,
    settings: { search_path: "pg_catalog" },
  });
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/**
 * Asks the control connection's server.
 *
 * @throws PgTaskError CONNECTION_FAILED, CONNECTION_REJECTED or SCHEMA_UNSUPPORTED_SERVER
 */
export async function inspectControl(
  control: ConnectionTarget,
  file: FileParameters,
): Promise<ControlFindings> {
  return await withConnection(control, async (client) => {
    const { rows } = await client.query<{
      version: string;
      number: number;
      roles: boolean;
      databases: boolean;
    }>(
      `SELECT current_setting('server_version') AS version,
              current_setting('server_version_num')::int AS number,
              rolsuper OR rolcreaterole AS roles,
              rolsuper OR rolcreatedb AS databases
         FROM pg_catalog.pg_roles WHERE rolname = current_user`,
    );
    const [row] = rows;
    if (row === undefined) throw new PgTaskError("INTERNAL", "no row about the current user");
    if (row.number < oldestVersion) {
      throw new PgTaskError(
        "SCHEMA_UNSUPPORTED_SERVER",
        `expected PostgreSQL 12 or later at ${control.host}, port ${control.port}, got ${row.version}`,
      );
    }
    const warnings: string[] = [];
    return {
      version: row.version,
      mayCreateRoles: row.roles,
      mayCreateDatabases: row.databases,
      askedForPassword: wasAskedForPassword(client),
      settings: await readControlSettings(client, file, gather(warnings)),
      warnings,
    };
  });
}

/**
 * Looks which of an entry's things exist. `control` is null when the entry is on another server:
 * then nobody else can be asked about its role and database.
 */
export async function inspectEntry(
  entry: Entry,
  control: { readonly target: ConnectionTarget; readonly findings: ControlFindings } | null,
): Promise<EntryFindings> {
  const findings: Finding[] = [];
  try {
    if (control !== null) {
      findings.push(...(await inspectAccount(entry, control.target, control.findings)));
      const absent = findings.filter(({ state }) => state !== "exists");
      if (absent.length > 0)
        return {
          ...outside,
          findings: [...findings, ...behind(entry, absent)],
          warnings: passwordWarnings(entry, absent, control.findings),
        };
    }
    const inside = await withConnection(entry.target, (client) =>
      inspectInside(entry, client),
    ).catch((error: unknown) => {
      throw explainFailure(error, taskTable(entry.schema, entry.table));
    });
    if (control === null) findings.push(...present(entry));
    return { ...inside, findings: [...findings, ...inside.findings] };
  } catch (error) {
    return { ...outside, findings, error: asPgTaskError(error) };
  }
}

/** What the new role could not connect with. */
function passwordWarnings(
  { ownPassword, target }: Entry,
  absent: readonly Finding[],
  { askedForPassword }: ControlFindings,
): string[] {
  const made = absent.some(({ what, state }) => what === "role" && state === "would be created");
  if (!made || ownPassword || !askedForPassword) return [];
  return [
    `the role ${identifier(target.user)} would be created without a password, and the server asks for one: give "password" in its entry`,
  ];
}

async function inspectInside(entry: Entry, client: Client): Promise<EntryFindings> {
  const warnings: string[] = [];
  const place = await locateTable(client, entry, gather(warnings));
  const placed = { ...entry, ...place };
  const names = serverParameters().map(({ name }) => name);
  return {
    findings: await inspectObjects(placed, client),
    paused: await pausedGroups(placed, client),
    place,
    settings: Object.fromEntries(await settingsMade(client, names)),
    warnings,
    error: await planError(placed, client),
  };
}

/** What start would say of `pg_task.plan`. */
async function planError(
  { schema, table, parameters }: Entry,
  client: Client,
): Promise<PgTaskError | null> {
  try {
    await refusePlan(client, taskTable(schema, table), parameters["pg_task.plan"]);
    return null;
  } catch (error) {
    if (error instanceof PgTaskError) return error;
    throw error;
  }
}

/** Takes what is said of settings that make no sense. */
const gather =
  (warnings: string[]): RefuseSetting =>
  (setting, value, used) =>
    warnings.push(
      `expected ${setting} to make sense, the server has ${JSON.stringify(value)}: ${JSON.stringify(used)} is used`,
    );

/**
 * What is said of an entry whose server has failed the control connection already: it is not
 * waited for once more.
 */
export function notInspected(entry: Entry): EntryFindings {
  const unknown = { state: "unknown", why: "the control connection failed" } as const;
  const account = present(entry).map(({ what, name }) => ({ what, name, ...unknown }));
  return { ...outside, findings: [...account, ...objects(entry, unknown)] };
}

/** Keeps an error of ours; any other is the connection's that ended under a query. */
export function asPgTaskError(error: unknown): PgTaskError {
  if (error instanceof PgTaskError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new PgTaskError("CONNECTION_LOST", `the server did not answer: ${message}`, {
    cause: error,
  });
}

/** Who could connect has role and database. */
function present({ target }: Entry): Finding[] {
  return [
    { what: "role", name: target.user, state: "exists" },
    { what: "database", name: target.database, state: "exists" },
  ];
}

async function inspectAccount(
  { target, create }: Entry,
  control: ConnectionTarget,
  rights: ControlFindings,
): Promise<Finding[]> {
  return await withConnection(control, async (client) => {
    const { rows } = await client.query<{ role: boolean; database: boolean }>(
      `SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1) AS role,
              EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = $2) AS database`,
      [target.user, target.database],
    );
    const { role = false, database = false } = rows[0] ?? {};
    return [
      find("role", target.user, role, create, {
        allowed: rights.mayCreateRoles,
        right: `the control connection's user ${control.user} lacks CREATEROLE`,
      }),
      find("database", target.database, database, create, {
        allowed: rights.mayCreateDatabases,
        right: `the control connection's user ${control.user} lacks CREATEDB`,
      }),
    ];
  });
}

function find(
  what: Finding["what"],
  name: string,
  exists: boolean,
  create: boolean,
  permission: { readonly allowed: boolean; readonly right: string },
): Finding {
  if (exists) return { what, name, state: "exists" };
  if (!create) return { what, name, state: "missing", why: 'the entry says "create": false' };
  if (permission.allowed) return { what, name, state: "would be created" };
  return { what, name, state: "not allowed", why: `missing, and ${permission.right}` };
}

/** Schema, type and table of an entry whose role or database is not there yet. */
function behind(entry: Entry, absent: readonly Finding[]): Finding[] {
  const inNew = absent.some(
    ({ what, state }) => what === "database" && state === "would be created",
  );
  const possible = absent.every(({ state }) => state === "would be created");
  const names = absent.map(({ what }) => what).join(" and ");
  const rest =
    inNew && possible
      ? ({ state: "would be created", why: "in the new database" } as const)
      : ({
          state: "unknown",
          why: `to be seen once the ${names} ${absent.length > 1 ? "exist" : "exists"}`,
        } as const);
  return objects(entry, rest);
}

function objects({ schema, table }: Entry, rest: Pick<Finding, "state" | "why">): Finding[] {
  return [
    { what: "schema", name: schema, ...rest },
    { what: "type", name: "state", ...rest },
    { what: "table", name: table, ...rest },
  ];
}

async function pausedGroups(entry: Entry, client: Client): Promise<(string | null)[]> {
  const { pauses } = taskTable(entry.schema, entry.table);
  // Somebody else's table may have the name: that is told where the table is.
  const found = await client.query<{ there: boolean }>(
    `SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute
       WHERE attrelid = pg_catalog.to_regclass($1) AND attname = 'group' AND NOT attisdropped) AS there`,
    [pauses],
  );
  if (found.rows[0]?.there !== true) return [];
  const { rows } = await client.query<{ group: string | null }>(
    `SELECT DISTINCT "group" FROM ${pauses} ORDER BY 1`,
  );
  return rows.map(({ group }) => group);
}

async function inspectObjects(entry: Entry, client: Client): Promise<Finding[]> {
  const { schema, table, create, target } = entry;
  const { rows } = await client.query<{
    schema: boolean;
    type: boolean;
    kind: string | null;
    inDatabase: boolean;
    inSchema: boolean;
  }>(
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
  const [row] = rows;
  if (row === undefined) throw new PgTaskError("INTERNAL", "no row about the entry's schema");
  const { user, database } = target;
  const reserved = schema.startsWith("pg_");
  const allowed = (row.schema || row.inDatabase) && row.inSchema && !reserved;
  const right = reserved
    ? 'names that begin with "pg_" are the server\'s own'
    : row.schema
      ? `the user ${user} may not create in the schema ${schema}`
      : `the user ${user} may not create a schema in the database ${database}`;
  const names = row.kind === null ? await inspectNames(client, entry) : { type: null, table: null };
  const refusedOr = (found: Finding, why: string | null): Finding =>
    why === null ? found : { what: found.what, name: found.name, state: "not allowed", why };
  return [
    find("schema", schema, row.schema, create, { allowed, right }),
    ...(row.kind === null
      ? [
          refusedOr(find("type", "state", row.type, create, { allowed, right }), names.type),
          refusedOr(find("table", table, false, create, { allowed, right }), names.table),
        ]
      : [...(await inspectStateType(client, entry)), await inspectTable(client, entry, row.kind)]),
  ];
}
