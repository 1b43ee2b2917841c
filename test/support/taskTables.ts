import { after } from "node:test";
import { connectManager } from "../../src/manager/connection.js";
import { ensureTable } from "../../src/manager/schema/ensureTable.js";
import { taskTable, type TaskTable } from "../../src/manager/schema/taskTable.js";
import type { ConnectionTarget, Entry, FileParameters } from "../../src/shared/config/types.js";
import { defaultParameters } from "../../src/shared/config/parameterValues.js";
import { connectClient, type Client } from "../../src/shared/postgres/client.js";
import { identifier } from "../../src/shared/postgres/quoting.js";
import { createLog } from "../../src/shared/log.js";

/** What a test's entry says beyond the defaults. */
export interface GivenEntry {
  readonly schema?: string;
  readonly table?: string;
  readonly create?: boolean;
  readonly parameters?: Partial<FileParameters>;
  readonly fixed?: Entry["fixed"];
}

/** An entry as the configuration would have it. */
export function makeEntry(target: ConnectionTarget, given: GivenEntry = {}): Entry {
  const { schema = "public", table = "task" } = given;
  return {
    key: `${target.host}:${target.port}/${target.database}/${schema}.${table}`,
    target,
    ownPassword: false,
    elsewhere: false,
    schema,
    table,
    create: given.create ?? true,
    parameters: { ...defaultParameters(), ...given.parameters },
    fixed: given.fixed ?? {},
  };
}

export const silentLog = createLog({ level: "silent", name: "test", write: () => {} });

/** Opens a manager's connection that is ended when the file has run. */
export async function openManager(target: ConnectionTarget): Promise<Client> {
  const client = await connectManager(makeEntry(target));
  after(() => client.end());
  return client;
}

/** Makes an entry's table, or brings it up to date, on a connection that is ended at once. */
export async function ensure(target: ConnectionTarget, given: GivenEntry = {}): Promise<TaskTable> {
  const entry = makeEntry(target, given);
  const table = taskTable(entry.schema, entry.table);
  const client = await connectManager(entry);
  try {
    await ensureTable(client, table, entry, silentLog);
  } finally {
    await client.end();
  }
  return table;
}

/** Runs something on a connection that is ended at once. */
export async function connected<T>(
  target: ConnectionTarget,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const client = await connectClient(target, { applicationName: "test" });
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** Makes a role that may log in, dropped with all it has in this database when the file has run. */
export async function createRole(client: Client, name: string): Promise<string> {
  await client.query(`CREATE ROLE ${identifier(name)} LOGIN`);
  after(async () => {
    await client.query(`DROP OWNED BY ${identifier(name)} CASCADE; DROP ROLE ${identifier(name)}`);
  });
  return name;
}
