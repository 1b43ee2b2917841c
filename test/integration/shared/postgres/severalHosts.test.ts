import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { freePort } from "../../../../src/embedded/port.js";
import { connectClient, disconnect, serverOf } from "../../../../src/shared/postgres/client.js";
import { openProtocolConnection } from "../../../../src/shared/postgres/openProtocolConnection.js";
import { buildStartup } from "../../../../src/shared/postgres/startupOptions.js";
import type { ConnectionTarget } from "../../../../src/shared/postgres/target/target.js";
import { createDatabase } from "../../../support/database.js";
import { startRawServer } from "../../../support/listen.js";
import { PgTask } from "../../../support/pgTask.js";
import { TcpProxy } from "../../../support/tcpProxy.js";
import { insertTask, waitForRow, waitForState } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const { target } = database;
const [first, second] = [
  await TcpProxy.start(target.port, target.host),
  await TcpProxy.start(target.port, target.host),
];
const closed = await freePort();
const name = target.database;

beforeEach(() => client.query(`ALTER DATABASE ${name} RESET ALL`));

function hosts(...ports: readonly number[]): ConnectionTarget {
  const [port = 0, ...others] = ports;
  const host = "127.0.0.1";
  return {
    ...target,
    host,
    port,
    sessionAttributes: "read-write",
    otherServers: others.map((each) => ({ host, port: each })),
  };
}

/** Connects, and returns the port of the server that was used. */
async function portOf(wanted: ConnectionTarget, writable = false): Promise<number> {
  const connected = await connectClient(wanted, { applicationName: "several", writable });
  const { port, host, address, otherServers } = serverOf(connected);
  assert.deepEqual([host, address, otherServers], ["127.0.0.1", "127.0.0.1", undefined]);
  await disconnect(connected);
  return port;
}

test("the first server that can be reached is used, by both kinds of connections", async () => {
  assert.equal(await portOf(hosts(closed, first.port, second.port)), first.port);
  assert.equal(await portOf(hosts(second.port, first.port)), second.port);
  const startup = buildStartup({});
  const { wire } = await openProtocolConnection(hosts(closed, second.port), {
    applicationName: "wire",
    startup,
    messageLimit: () => 1e6,
  });
  await second.connected("wire", 1);
  await wire.close();
});

const refused = (port: number): string =>
  `no connection to the server at 127.0.0.1, port ${port} ` +
  `(postgresql://${target.user}@127.0.0.1:${port}/${name}): nothing listens there: is the server running? (ECONNREFUSED)`;

test("with load_balance_hosts=random, each server is used at times, and an error always reads the same", async () => {
  const random = { ...hosts(first.port, second.port), loadBalance: true } as const;
  const used = new Set<number>();
  while (used.size < 2) used.add(await portOf(random));
  const other = await freePort();
  const messages = new Set<string>();
  for (let count = 0; count < 20; count += 1) {
    await assert.rejects(portOf({ ...hosts(closed, other), loadBalance: true }), (error: Error) => {
      messages.add(error.message);
      return true;
    });
  }
  assert.deepEqual([...messages], [`${refused(closed)}; ${refused(other)}`]);
});

test("a server that refuses the login ends the search, as in libpq", async () => {
  const before = second.count;
  const wrong = { ...hosts(first.port, second.port), user: "nobody_of_this_name" };
  await assert.rejects(portOf(wrong), { code: "CONNECTION_REJECTED", sqlState: "28000" });
  assert.equal(second.count, before);
});

test("read-write skips servers whose sessions are read-only; primary and any do not", async () => {
  await client.query(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
  const one = hosts(first.port);
  await assert.rejects(portOf(hosts(first.port, second.port)), {
    code: "CONNECTION_READ_ONLY",
    message: [first.port, second.port]
      .map(
        (port) =>
          `no writable server at postgresql://${target.user}@127.0.0.1:${port}/${name}: its sessions are read-only (default_transaction_read_only is on)`,
      )
      .join("; "),
  });
  assert.equal(await portOf({ ...one, sessionAttributes: "primary" }, true), first.port);
  assert.equal(await portOf({ ...one, sessionAttributes: "any" }, true), first.port);
  // The page and its API set this themselves, so it says nothing about the server.
  const readOnly = { default_transaction_read_only: "on" };
  const page = await connectClient(hosts(first.port), { applicationName: "page", settings: readOnly });
  await disconnect(page);
});

test("a name with several addresses is tried at each of them", async () => {
  const { port } = target;
  const connected = await connectClient({ ...target, host: "localhost", port }, { applicationName: "name" });
  assert.equal(serverOf(connected).address, target.host);
  assert.equal(serverOf(connected).host, "localhost");
  await disconnect(connected);
});

test("sessions do not try a silent server again that the manager has passed over", async () => {
  let attempts = 0;
  const port = await startRawServer(() => void (attempts += 1));
  const url = `postgresql://${target.user}@127.0.0.1:${port},127.0.0.1:${target.port}/${name}?connect_timeout=1`;
  // The url of the entry has several hosts as well.
  await pgTask.start({ url, "pg_task.json": [{ url, table: "task" }] });
  const before = attempts;
  assert.ok(before >= 2, String(before));
  await client.query("SELECT pg_advisory_lock(1)");
  const ids = await Promise.all(
    [1, 2, 3, 4, 5].map((group) =>
      insertTask(client, "SELECT pg_advisory_lock_shared(1)", { group: `group ${group}` }),
    ),
  );
  await waitForRow(client, "SELECT FROM task WHERE state = 'WORK' HAVING count(*) = 5");
  await client.query("SELECT pg_advisory_unlock(1)");
  for (const id of ids) await waitForState(client, id, "DONE");
  assert.equal(attempts, before);
  await pgTask.stop();
});
