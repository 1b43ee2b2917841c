import { randomBytes } from "node:crypto";
import { after } from "node:test";
import { type Client } from "../../src/shared/postgres/client.js";
import type { ConnectionTarget } from "../../src/shared/postgres/target/target.js";
import { withConnectionTo, connectTo } from "./connectTo.js";

/** A database for one test file. It is dropped after the file's tests. */
export interface TestDatabase {
  readonly target: ConnectionTarget;
  readonly url: string;
  /** Opens a connection. It is ended after the file's tests. */
  connect(): Promise<Client>;
}

/**
 * Returns the target of a database on the server that test/run.ts has started, or was given, for this run of the test
 * suite.
 */
export function serverTarget(database = "postgres"): ConnectionTarget {
  const url = process.env["TEST_DATABASE_URL"];
  if (url === undefined) throw new Error("TEST_DATABASE_URL is not set: start tests with npm test");
  const { hostname, port, username } = new URL(url);
  return {
    host: hostname,
    port: Number(port),
    user: username,
    database,
    sslmode: "disable",
    connectTimeoutMs: 10_000,
  };
}

/**
 * Creates a database for this test file: with a task table (`task`), empty (`empty`), or empty and with the encoding
 * LATIN1 or SQL_ASCII. Must be called at the top level of a test file.
 */
export async function createDatabase(kind: "task" | "empty" | "LATIN1" | "SQL_ASCII" = "task"): Promise<TestDatabase> {
  if (kind === "LATIN1" || kind === "SQL_ASCII") return await createFrom(await encoded(kind));
  return await createFrom(await copied(kind === "task" ? "test_template" : "template1"));
}

/** Creates a copy of a database for this test file. Nobody may be connected to the original. */
export async function copyDatabase({ target }: TestDatabase): Promise<TestDatabase> {
  return await createFrom(await copied(target.database));
}

async function createFrom(source: string): Promise<TestDatabase> {
  const name = `test_${randomBytes(6).toString("hex")}`;
  await onServer((client) => client.query(`CREATE DATABASE ${name} TEMPLATE ${source}`));
  const target = serverTarget(name);
  const clients: Client[] = [];
  after(async () => {
    await Promise.all(clients.map((client) => client.end()));
    await onServer((client) => dropDatabase(client, name));
  });
  return {
    target,
    url: `postgresql://${target.user}@${target.host}:${target.port}/${name}`,
    async connect() {
      const client = await connectTo(target);
      clients.push(client);
      return client;
    },
  };
}

/** Returns the template and the options of CREATE DATABASE for a copy of this database. */
async function copied(template: string): Promise<string> {
  // Copying the files is faster than writing the copy to the WAL.
  const strategy = (await serverMajor()) < 15 ? "" : "STRATEGY FILE_COPY";
  return `${template} ${strategy}`;
}

/** Returns the template and the options of CREATE DATABASE for a database with this encoding. */
async function encoded(encoding: string): Promise<string> {
  // Only libc locales support all encodings. Before PostgreSQL 15, databases have no other locale provider.
  const provider = (await serverMajor()) < 15 ? "" : "LOCALE_PROVIDER libc";
  return `template0 ENCODING '${encoding}' LC_COLLATE 'C' LC_CTYPE 'C' ${provider}`;
}

let major: Promise<number> | null = null;

export async function serverMajor(): Promise<number> {
  major ??= onServer(async (client) => {
    const { rows } = await client.query<{ number: string }>("SELECT current_setting('server_version_num') AS number");
    return Math.trunc(Number(rows[0]?.number) / 10_000);
  });
  return await major;
}

/** Does the same as DROP DATABASE … WITH (FORCE), which exists from PostgreSQL 13 on. */
export async function dropDatabase(client: Client, name: string): Promise<void> {
  await client.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
  await client.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", [name]);
  await client.query(`DROP DATABASE ${name}`);
}

/** Calls `work` with a temporary connection to the database `postgres`. */
export const onServer = <T>(work: (client: Client) => Promise<T>): Promise<T> => withConnectionTo(serverTarget(), work);
