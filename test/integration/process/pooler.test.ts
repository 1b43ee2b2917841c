import assert from "node:assert/strict";
import { connect as connectSocket, createServer } from "node:net";
import { describe, it } from "node:test";
import { Client } from "pg";
import { connectManager } from "../../../src/manager/loop/connectManager.js";
import { loadConfiguration } from "../../../src/shared/config/loadConfiguration.js";
import type { ConnectionTarget } from "../../../src/shared/postgres/target/target.js";
import { connectClient } from "../../../src/shared/postgres/client.js";
import { createLog } from "../../../src/shared/log.js";
import { RolesAndDatabases } from "../../../src/supervisor/rolesAndDatabases.js";
import { cli } from "../../support/cli.js";
import { createDatabase, serverTarget } from "../../support/database.js";
import { ExecutorDriver } from "../../support/executorDriver.js";
import { findPgBouncer, startPgBouncer, type PoolMode } from "../../support/pgbouncer.js";
import { PgTask } from "../../support/pgTask.js";
import { only, waitForState } from "../../support/tasks.js";
import { listen } from "../../support/listen.js";

const database = await createDatabase();
const client = await database.connect();
await client.query(`CREATE SCHEMA hostile;
  CREATE FUNCTION hostile.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
  CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END'`);
const program = await findPgBouncer();
const skip = program === null ? "PgBouncer is not installed here, and only root can install it" : false;
const log = createLog({ level: "silent", name: "test", write: () => {} });

const throughPort = (port: number): string => database.url.replace(/:\d+\//, `:${port}/`) + "?sslmode=disable";

/** Asserts that the error names the cause, the address and the remedy. */
function assertRefusal(reason: unknown, port: number): void {
  const text = String(reason);
  assert.match(text, /a pooler such as PgBouncer is there/);
  assert.match(text, new RegExp(`:${port}/`));
  assert.match(text, /give the server's own address to pg-task/);
}

async function refuses(port: number, opening: Promise<unknown>): Promise<void> {
  await assert.rejects(opening, (error: Error) => {
    assertRefusal(error.message, port);
    assert.equal("code" in error && error.code, "CONNECTION_POOLED");
    return true;
  });
}

for (const mode of ["session", "transaction", "statement"] satisfies PoolMode[]) {
  for (const ignoring of [true, false]) {
    const how = ignoring ? "drops" : "refuses";
    describe(`PgBouncer in ${mode} mode that ${how} unknown parameters`, { skip }, () => {
      const pooler = startPgBouncer(program ?? "", mode, ignoring);

      it("is rejected by every kind of connection of pg-task's own", async () => {
        const { port } = await pooler;
        const target: ConnectionTarget = { ...database.target, port };
        const { control, entries } = await loadConfiguration({
          cwd: "/",
          env: {},
          control: throughPort(port),
        });
        const entry = only(entries);
        await refuses(port, connectClient(control, { applicationName: "pg_conf" }));
        await refuses(port, connectManager(entry));
        const elsewhere = { ...entry, target: { ...entry.target, user: "somebody" } };
        await refuses(port, new RolesAndDatabases(control, log).ensure(elsewhere, { isStart: true }));
        const driver = new ExecutorDriver(target, client);
        driver.executor.receive({ type: "open", sessions: [1], group: "group" });
        const { reason } = await driver.message("openFailed");
        assert.equal(reason.code, "CONNECTION_POOLED");
        assertRefusal(reason.message, port);
      });

      it(mode === "statement" ? "is refused by the commands" : "lets the commands work", async () => {
        const { port } = await pooler;
        const run = async (...args: string[]) => await cli(args, { env: { DATABASE_URL: throughPort(port) } });
        const diagnosed = await run("doctor");
        assert.equal(diagnosed.code, 3);
        assertRefusal(diagnosed.stdout, port);
        if (mode === "statement") {
          const { code, stderr } = await run("list");
          assert.equal(code, 3);
          assertRefusal(stderr, port);
          assert.match(stderr, /transaction blocks not allowed in statement pooling mode/);
          return;
        }
        const succeed = async (...args: string[]): Promise<string> => {
          const { code, stdout, stderr } = await run(...args);
          assert.deepEqual([code, stderr], [0, ""], args.join(" "));
          return stdout.trim();
        };
        const pgTask = new PgTask();
        await pgTask.start({ url: database.url });
        // What another client leaves in the pooler's session must not affect the commands, nor the reverse.
        const other = new Client({ connectionString: throughPort(port) });
        await other.connect();
        try {
          await other.query(
            "SET search_path = hostile, pg_catalog; SET lock_timeout = '1234ms'; SET DateStyle = 'German'",
          );
          await other.query("SET default_transaction_read_only = on");
          const id = await succeed("add", "SELECT 1", "--plan", "infinity", "--key", "pooled");
          assert.match(await succeed("list"), new RegExp(`^ *${id}\\b`, "m"));
          assert.match(await succeed("show", id), /infinity/);
          assert.match(await succeed("why", id), /infinity|never/);
          assert.equal(await succeed("add", "SELECT 42", "--wait"), "42");
          await succeed("run-now", id);
          await waitForState(client, id, "DONE");
          const stopped = await succeed("add", "SELECT 1", "--plan", "infinity");
          await succeed("stop", stopped);
          await succeed("retry", stopped);
          await waitForState(client, stopped, "DONE");
          await succeed("pause");
          await succeed("resume");
          for (const command of ["groups", "status", "accept-copy"]) await succeed(command);
          await succeed("prune", "--older", "1 hour");
          await succeed("next", "0 8 * * *");
          await succeed("delete", id, "--yes");
          await other.query("SET default_transaction_read_only = off");
          const settings = ["search_path", "lock_timeout", "DateStyle"].map((name) => `current_setting('${name}')`);
          const { rows } = await other.query<{ kept: string }>(
            `SELECT concat_ws('; ', ${settings.join(", ")}) AS kept`,
          );
          assert.equal(rows[0]?.kept, "hostile, pg_catalog; 1234ms; German, DMY");
        } finally {
          await other.query("DISCARD ALL");
          await other.end();
          await pgTask.stop();
        }
      });

      it("is named in the log when the control connection uses it", async () => {
        const { port } = await pooler;
        const pgTask = new PgTask();
        pgTask.launch({ url: throughPort(port) });
        const line = await pgTask.line("control connection failed, retrying");
        assert.equal(line["code"], "CONNECTION_POOLED");
        assertRefusal(line["reason"], port);
        await pgTask.stop();
        assert.equal(pgTask.linesMatching("became leader").length, 0);
      });

      it("lets producers insert, while an entry that uses it waits", async () => {
        const { port } = await pooler;
        const { database: data, user } = database.target;
        const pgTask = new PgTask();
        pgTask.launch({
          url: database.url,
          "pg_task.json": [
            { data, user },
            { data, user, table: "other", url: throughPort(port) },
          ],
        });
        const line = await pgTask.line("manager unavailable, retrying");
        assert.equal(line["code"], "CONNECTION_POOLED");
        assertRefusal(line["reason"], port);
        await pgTask.line("ready");
        const producer = new Client({ connectionString: throughPort(port) });
        await producer.connect();
        const { rows } = await producer.query<{ id: string }>(
          "INSERT INTO task (input) VALUES ('SELECT 1') RETURNING id",
        );
        await waitForState(client, rows[0]?.id ?? "", "DONE");
        await producer.end();
        await pgTask.stop();
      });
    });
  }
}

/** Starts a proxy that announces the right backend but drops the startup options, as some poolers do. */
async function startOptionDroppingProxy(): Promise<number> {
  const { host, port } = serverTarget();
  const server = createServer((socket) => {
    const upstream = connectSocket(port, host);
    socket.once("data", (startup) => {
      upstream.write(withoutOptions(startup));
      socket.pipe(upstream).pipe(socket);
    });
    for (const each of [socket, upstream]) each.on("error", () => {});
  });
  return await listen(server);
}

function withoutOptions(startup: Buffer): Buffer {
  const fields = startup.subarray(8).toString().split("\0");
  const index = fields.indexOf("options");
  assert.ok(index >= 0);
  fields.splice(index, 2);
  const rest = Buffer.from(fields.join("\0"));
  const head = Buffer.from(startup.subarray(0, 8));
  head.writeInt32BE(8 + rest.length);
  return Buffer.concat([head, rest]);
}

it("rejects a connection that did not get the requested settings", async () => {
  const port = await startOptionDroppingProxy();
  await refuses(port, connectClient({ ...database.target, port }, { applicationName: "pg_conf" }));
});
