import assert from "node:assert/strict";
import { connect as connectSocket, type Socket } from "node:net";
import { test } from "node:test";
import type { ErrorReport } from "../../../../src/shared/errors.js";
import type { ConnectionTarget } from "../../../../src/shared/postgres/target/target.js";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver } from "../../../support/executorDriver.js";
import { startRawServer } from "../../../support/listen.js";
import { createRole } from "../../../support/taskTables.js";

const database = await createDatabase();
const admin = await database.connect();

/** Rewrites the traffic of one connection. */
interface Interceptor {
  /** Returns the bytes to forward to the server, or null to forward none. */
  readonly toServer?: (chunk: Buffer, client: Socket) => Buffer | null;
  readonly toClient?: (chunk: Buffer) => Buffer;
}

/** Starts a proxy that intercepts its connections. Returns the proxy's address as a connection target. */
async function startProxy(createInterceptor: () => Interceptor): Promise<ConnectionTarget> {
  const port = await startRawServer((client) => {
    const server = connectSocket(database.target.port, database.target.host);
    const { toServer = (chunk) => chunk, toClient = (chunk) => chunk } = createInterceptor();
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      from.on("close", () => to.destroy());
      from.on("error", () => to.destroy());
    }
    client.on("data", (chunk: Buffer) => {
      const forwarded = toServer(chunk, client);
      if (forwarded !== null) server.write(forwarded);
    });
    server.on("data", (chunk: Buffer) => client.write(toClient(chunk)));
  });
  return { ...database.target, host: "127.0.0.1", port };
}

/** Builds an ErrorResponse message with this SQLSTATE. */
function refusal(code: string): Buffer {
  const body = Buffer.from(`SFATAL\0VFATAL\0C${code}\0Munrecognized configuration parameter\0\0`);
  const header = Buffer.from("E\0\0\0\0");
  header.writeUInt32BE(body.length + 4, 1);
  return Buffer.concat([header, body]);
}

/** Tries to open a session, and returns why it cannot be opened. */
async function refusalOf(driver: ExecutorDriver): Promise<ErrorReport> {
  driver.executor.receive({ type: "open", sessions: [1], group: "group" });
  return (await driver.message("openFailed")).reason;
}

test("a server that does not know newer settings gets the others", async () => {
  const startups: string[] = [];
  const target = await startProxy(() => {
    let started = false;
    return {
      toServer(chunk, client) {
        if (started) return chunk;
        started = true;
        startups.push(chunk.toString());
        if (!chunk.includes("client_connection_check_interval")) return chunk;
        client.end(refusal("42704"));
        return null;
      },
    };
  });
  const driver = new ExecutorDriver(target, admin);
  await Promise.all([driver.open(1), driver.open(2)]);
  await driver.open(3);
  const look = "SELECT current_setting('tcp_user_timeout') || current_setting('client_encoding')";
  assert.equal((await driver.run(3, look)).output, "0UTF8");
  assert.equal(startups.length, 5, "once known, they are not sent again");
});

test("a login refused for another reason is not retried", async () => {
  let connections = 0;
  const target = await startProxy(() => {
    connections++;
    return {
      toServer(_, client) {
        client.end(refusal("28000"));
        return null;
      },
    };
  });
  const reason = await refusalOf(new ExecutorDriver(target, admin));
  assert.equal(reason.code, "CONNECTION_REJECTED");
  assert.equal(connections, 1);
});

test("a connection through a pooler is rejected", async () => {
  const target = await startProxy(() => ({
    toClient(chunk) {
      const keyData = chunk.indexOf(Buffer.from("K\0\0\0\x0c"));
      if (keyData !== -1) chunk.writeInt32BE(chunk.readInt32BE(keyData + 5) ^ 1, keyData + 5);
      return chunk;
    },
  }));
  const reason = await refusalOf(new ExecutorDriver(target, admin));
  assert.equal(reason.code, "CONNECTION_POOLED");
  assert.match(reason.message, /give the server's own address/);
});

test("a role setting that hides the session's own backend is named", async () => {
  const user = await createRole(admin, `hidden_${database.target.database}`);
  const role = await createRole(admin, `hiding_${database.target.database}`);
  await admin.query(`
    GRANT ${role} TO ${user};
    GRANT ALL ON ALL TABLES IN SCHEMA public TO ${role};
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO ${role};
    ALTER ROLE ${user} SET role = '${role}'`);
  const reason = await refusalOf(new ExecutorDriver({ ...database.target, user }, admin));
  assert.equal(reason.code, "CONNECTION_REJECTED");
  const named = `the setting "role" of ${user} is ${role}, which may not see it; ALTER ROLE`;
  assert.ok(reason.message.includes(named), reason.message);
});

test("an unreachable server is reported as such", async () => {
  const reason = await refusalOf(new ExecutorDriver({ ...database.target, port: 1 }, admin));
  assert.equal(reason.code, "CONNECTION_FAILED");
});

test("output that fills many packets is complete", async () => {
  const target = await startProxy(() => ({}));
  const driver = new ExecutorDriver(target, admin);
  await driver.open(1);
  const { output } = await driver.run(1, "SELECT repeat('äb', 100000), 2 AS b");
  assert.equal(output, `repeat\tb\n${"äb".repeat(100_000)}\t2`);
});

for (const [title, garbage, expected] of [
  ["malformed", Buffer.from([0x44, 0, 0, 0, 0]), /cannot be read: .*length below 4/],
  ["of an unknown type", Buffer.from([0x21, 0, 0, 0, 4]), /cannot be read: unexpected message/],
  ["truncated", Buffer.from([0x44, 0, 0, 0, 6, 0, 9]), /cannot be read: /],
  ["unexpected", Buffer.from("Z\0\0\0\x05I"), /cannot be read: /],
] as const) {
  test(`a server message that is ${title} loses the session, not the thread`, async () => {
    let corrupt = false;
    const target = await startProxy(() => ({
      toClient: (chunk) => (corrupt ? Buffer.concat([chunk, garbage]) : chunk),
    }));
    const driver = new ExecutorDriver(target, admin);
    await driver.open(1);
    corrupt = true;
    driver.executor.dispatch([driver.makeRun(1, "SELECT 1")]);
    const { reason } = await driver.message("lost");
    assert.match(reason.message, expected);
    await driver.executor.stop();
  });
}

test("a connection reset during a run loses the session, not the thread", async () => {
  let connection: Socket | undefined;
  const target = await startProxy(() => ({
    toServer(chunk, client) {
      connection = client;
      return chunk;
    },
  }));
  const driver = new ExecutorDriver(target, admin);
  await driver.open(1);
  driver.executor.dispatch([driver.makeRun(1, "SELECT pg_sleep(600)")]);
  await driver.untilRunning(1, "pg_sleep");
  connection?.resetAndDestroy();
  const { reason } = await driver.message("lost");
  assert.equal(reason.code, "CONNECTION_LOST");
  assert.deepEqual(driver.results(), []);
});

test("a run whose settings are refused is released", async () => {
  const driver = new ExecutorDriver(database.target, admin);
  await driver.open(1);
  const unsettable = driver.makeRun(1, "SELECT 1", { timeoutMs: Number.NaN });
  driver.executor.dispatch([{ ...unsettable, group: "\0" }]);
  const { outcome } = await driver.result(unsettable.id);
  assert.equal(outcome, "released");
});

test("a very short statement_timeout of the database does not keep sessions from opening, and applies to tasks", async () => {
  const { database: name } = database.target;
  await admin.query(`ALTER DATABASE ${name} SET statement_timeout = 1`);
  const driver = new ExecutorDriver(database.target, admin);
  for (let session = 1; session <= 60; session += 1) {
    await driver.open(session);
    driver.executor.receive({ type: "close", sessions: [session] });
  }
  await driver.open(61);
  const { error } = await driver.run(61, "SELECT pg_sleep(600)");
  assert.match(String(error), /canceling statement due to statement timeout/);
  await driver.executor.stop();
  await admin.query(`ALTER DATABASE ${name} RESET statement_timeout`);
});
