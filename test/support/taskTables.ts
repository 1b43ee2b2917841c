import { after } from "node:test";
import { connectManager } from "../../src/manager/loop/connectManager.js";
import { ensureTable } from "../../src/manager/schema/ensureTable.js";
import { taskTable, type TaskTable } from "../../src/manager/schema/taskTable.js";
import type { Entry } from "../../src/shared/config/types.js";
import type { FileParameters } from "../../src/shared/config/parameterTable.js";
import type { ConnectionTarget } from "../../src/shared/postgres/target/target.js";
import { defaultParameters } from "../../src/shared/config/parameters.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { ownerSql } from "../../src/shared/postgres/backendIdentity.js";
import { identifier } from "../../src/shared/postgres/quoting.js";
import { createLog, type Log } from "../../src/shared/log.js";
import { createDatabase } from "./database.js";
import { valueOf } from "./tasks.js";
import { stubClient } from "./stubClient.js";

export interface EntryOptions {
  readonly schema?: string;
  readonly table?: string;
  readonly create?: boolean;
  readonly users?: boolean;
  readonly parameters?: Partial<FileParameters>;
  readonly fixed?: Entry["fixed"];
}

/** Returns an entry as it would be loaded from a configuration. */
export function makeEntry(target: ConnectionTarget, given: EntryOptions = {}): Entry {
  const { schema = "public", table = "task" } = given;
  return {
    key: `${target.host}:${target.port}/${target.database}/${schema}.${table}`,
    target,
    ownPassword: false,
    elsewhere: false,
    schema,
    table,
    create: given.create ?? true,
    createRoleAndDatabase: given.create ?? true,
    users: given.users ?? false,
    parameters: { ...defaultParameters(), ...given.parameters },
    fixed: given.fixed ?? {},
  };
}

export const silentLog = createLog({ level: "silent", name: "test", write: () => {} });

/** Opens a connection with the manager's settings. It is ended after the file's tests. */
export async function openManager(target: ConnectionTarget): Promise<Client> {
  const client = await connectManager(makeEntry(target));
  after(() => client.end());
  return client;
}

/** What the tasks of a session have as their owner, if this is its connection. */
export const ownerOf = (client: Client): Promise<string> =>
  valueOf(client, `SELECT ${ownerSql("a")} FROM pg_stat_activity AS a WHERE pid = pg_backend_pid()`);

/** A database with the table public.task, a user's and a manager's connection to it, and the table. */
export async function openTable() {
  const database = await createDatabase();
  const user = await database.connect();
  const manager = await openManager(database.target);
  return { database, user, manager, table: taskTable("public", "task") };
}

/** What a test does while the table is created or migrated. */
interface Watch {
  readonly log?: Log;
  readonly connected?: (manager: Client) => Promise<unknown>;
  /** Called ahead of each statement. */
  readonly before?: (text: string) => Promise<void>;
}

/** Creates or migrates an entry's table, on a temporary connection. */
export async function ensureTaskTable(
  target: ConnectionTarget,
  given: EntryOptions = {},
  { log = silentLog, connected, before }: Watch = {},
): Promise<TaskTable> {
  const entry = makeEntry(target, given);
  const table = taskTable(entry.schema, entry.table);
  const client = await connectManager(entry);
  const watched = stubClient(async (text, values) => {
    await before?.(text);
    const { rows, rowCount } = await client.query<object>(text, [...values]);
    return { rows, rowCount: rowCount ?? 0 };
  });
  try {
    await connected?.(client);
    await ensureTable(before === undefined ? client : watched, table, entry, log);
  } finally {
    await client.end();
  }
  return table;
}

/**
 * Creates a role that can log in. It is dropped after the file's tests, with everything that it owns in this database.
 */
export async function createRole(client: Client, name: string): Promise<string> {
  await client.query(`CREATE ROLE ${identifier(name)} LOGIN`);
  after(async () => {
    await client.query(`DROP OWNED BY ${identifier(name)} CASCADE; DROP ROLE ${identifier(name)}`);
  });
  return name;
}
