import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { commandsOn } from "../../../support/cli.js";
import { doctor } from "../../../support/doctor.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { createRole } from "../../../support/taskTables.js";
import { insertTask, newName, waitForState } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const other = await createDatabase();
const client = await database.connect();
const there = await other.connect();
const { env } = commandsOn(database);
const role = `${newName()}_${process.pid}`;
await there.query("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
await there.query("CREATE TABLE effect (n integer); GRANT INSERT ON effect TO PUBLIC");
const { host, port, database: dbname } = other.target;
const remote = `host=${host} port=${port} dbname=${dbname} user=${role} sslmode=disable`;
const label = `${role}@${host}:${port}/${dbname}`;

const findings = async (): Promise<string[][]> =>
  (await doctor(env)).lines
    .filter(({ name }) => name === "remote")
    .map(({ level, text, remedy }) => [level, text, remedy]);

const plan = (to: string): Promise<string> => insertTask(client, "SELECT", { remote: to, plan: "infinity" });

test("doctor says nothing of remote servers if no remote task waits", async () => {
  assert.deepEqual(await findings(), []);
});

test("where the role may not create a ledger, doctor and log say so, and tasks run", async () => {
  await createRole(there, role);
  await pgTask.start({ url: database.url });
  const id = await insertTask(client, "INSERT INTO effect VALUES (1)", { remote });
  await waitForState(client, id, "DONE");
  const line = await pgTask.line("no ledger on the server of a remote task, tasks run there at least once");
  const reason = "the role may create a table in no schema of its search_path";
  assert.deepEqual([line["id"], line["server"], line["reason"]], [id, label, reason]);
  await plan(remote);
  const remedy = `CREATE SCHEMA AUTHORIZATION "${role}"`;
  assert.deepEqual(await findings(), [
    [
      "warn",
      `remote tasks at ${label} run at least once: ${reason}`,
      `if its tasks must not run twice, as an administrator there: ${remedy}`,
    ],
  ]);
  await there.query(remedy);
  const good = [
    "ok",
    "the servers of waiting remote tasks have a ledger, or get one: tasks run there exactly once",
    "\\N",
  ];
  assert.deepEqual(await findings(), [good]);
  await pgTask.stop();
  await pgTask.start({ url: database.url });
  const count = `SELECT count(*)::integer AS count FROM "${role}"."pg_task_ledger_${role}" WHERE done`;
  await waitForState(client, await insertTask(client, "INSERT INTO effect VALUES (2)", { remote }), "DONE");
  assert.deepEqual((await there.query(count)).rows, [{ count: 1 }]);
  assert.deepEqual(await findings(), [good]);
  await client.query("DELETE FROM task");
  await plan(`${remote} options='-c default_transaction_read_only=on'`);
  await plan("host=127.0.0.1 port=1 user=u password=hush dbname=d");
  await plan("postgresql://u:hush@hush@127.0.0.1/d");
  // Passwords are not shown.
  const found = await findings();
  assert.deepEqual(
    found.map(([level, text]) => [level, text]),
    [
      [
        "warn",
        'remote tasks at u@127.0.0.1:1/d: connection to server at "127.0.0.1", port 1 failed: Connection refused',
      ],
      ["warn", `remote tasks at ${label} run at least once: the session is read-only`],
      ["warn", "remote tasks at ***: no connection"],
    ],
  );
});
