import { randomBytes } from "node:crypto";
import { after } from "node:test";
import { connectClient, type Client } from "../../src/shared/postgres/client.js";
import type { ConnectionTarget } from "../../src/shared/config/types.js";

/** A database of a test file's own, dropped when the file has run. */
export interface TestDatabase {
  readonly target: ConnectionTarget;
  readonly url: string;
  /** Opens a connection that is ended when the file has run. */
  connect(): Promise<Client>;
}

/** The server that test/run.ts started (or was given) for this run of the suite. */
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
 * Makes a database for this test file; `kind` "task" has the task table in it already, "empty" is a
 * new one, "LATIN1" and "SQL_ASCII" new ones of that encoding. Call it at the top level of a test file.
 */
export async function createDatabase(
  kind: "task" | "empty" | "LATIN1" | "SQL_ASCII" = "task",
): Promise<TestDatabase> {
  const name = `test_${randomBytes(6).toString("hex")}`;
  const source = {
    task: "test_template",
    empty: "template1",
    LATIN1: await encoded("LATIN1"),
    SQL_ASCII: await encoded("SQL_ASCII"),
  }[kind];
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
      const client = await connectClient(target, { applicationName: "test" });
      clients.push(client);
      return client;
    },
  };
}

/** What a database of that encoding is made from. */
async function encoded(encoding: string): Promise<string> {
  // Only the C library's locales have them all; servers before 15 know no others.
  const provider = (await serverMajor()) < 15 ? "" : "LOCALE_PROVIDER libc";
  return `template0 ENCODING '${encoding}' LC_COLLATE 'C' LC_CTYPE 'C' ${provider}`;
}

/** 18 and the like. */
export async function serverMajor(): Promise<number> {
  return await onServer(async (client) => {
    const { rows } = await client.query<{ number: string }>(
      "SELECT current_setting('server_version_num') AS number",
    );
    return Math.trunc(Number(rows[0]?.number) / 10_000);
  });
}

/** As DROP DATABASE … WITH (FORCE) does it from PostgreSQL 13 on. */
export async function dropDatabase(client: Client, name: string): Promise<void> {
  await client.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
  await client.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", [
    name,
  ]);
  await client.query(`DROP DATABASE ${name}`);
}

/** Runs something on a short connection to the server's own database. */
export async function onServer<T>(work: (client: Client) => Promise<T>): Promise<T> {
  const client = await connectClient(serverTarget(), { applicationName: "test" });
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
