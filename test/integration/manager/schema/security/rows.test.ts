import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, it } from "node:test";
import { disconnect, sqlState, type Client } from "../../../../../src/shared/postgres/client.js";
import { createDatabase, onServer } from "../../../../support/database.js";
import { PgTask, startPgTask } from "../../../../support/pgTask.js";
import { only, insertTask, waitForRow, waitForRun, waitForState } from "../../../../support/tasks.js";
import { projectPath } from "../../../../support/project.js";
import { connectTo } from "../../../../support/connectTo.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const admin = await database.connect();
const name = database.target.database;
const limit = { timeout: 60_000 };

/** Roles belong to the whole server, so their names contain the name of the test's database. */
const named = (role: string): string => `${role}_${name}`;
const [owner, producer, mail] = [named("owner"), named("producer"), named("mail")];
const [alice, bob, scheduler] = [named("alice"), named("bob"), named("scheduler")];

const clients: Client[] = [];
const opened = async (user: string): Promise<Client> => {
  const client = await connectTo({ ...database.target, user });
  clients.push(client);
  return client;
};

const config = { url: database.url, "pg_task.json": [{ data: name, user: owner }] };

// By then, the database has been dropped, with everything that the roles owned.
after(async () => {
  await Promise.all(clients.map((client) => disconnect(client)));
  const all = [owner, producer, alice, bob, scheduler, mail].join(", ");
  await onServer((server) => server.query(`DROP ROLE ${all}`));
});

/** The SQL of docs/security.md, with the names of this test's roles filled in. */
const [entrys, grants, upserts] = [
  ...readFileSync(projectPath("docs/security.md"), "utf8").matchAll(/^```sql\n(.*?)^```$/gms),
]
  .map(([, sql = ""]) => sql)
  // The grants of a role that only looks have a test of their own.
  .filter((sql) => !sql.includes("TO reader"))
  .map((sql) =>
    sql
      .replaceAll(/\b(TO|FROM) producer\b/g, `$1 ${producer}`)
      .replaceAll("TO scheduler", `TO ${scheduler}`)
      .replaceAll(/\bmail\b/g, mail),
  );
/** Policies of a user's own, for a table without users. */
const policies = `
ALTER TABLE task ADD COLUMN author name NOT NULL DEFAULT current_user;
ALTER TABLE task ENABLE ROW LEVEL SECURITY;
CREATE POLICY author_insert ON task FOR INSERT TO ${producer}
  WITH CHECK (author = current_user AND parent IS NULL);
CREATE POLICY author_select ON task FOR SELECT TO ${producer} USING (author = current_user);
CREATE POLICY author_update ON task FOR UPDATE TO ${producer} USING (author = current_user);
CREATE POLICY author_delete ON task FOR DELETE TO ${producer} USING (author = current_user);
`;
/** Lets producers choose a job without writing SQL. */
const definers = `
CREATE FUNCTION later_report(customer integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO public.task (input, author)
  VALUES (format('SELECT report(%L::integer)', customer), session_user) RETURNING id
$$;
REVOKE EXECUTE ON FUNCTION later_report(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION later_report(integer) TO ${producer};
REVOKE INSERT ON task FROM ${producer};
`;
await admin.query(`
  CREATE ROLE ${owner} LOGIN; CREATE ROLE ${producer};
  CREATE ROLE ${alice} LOGIN IN ROLE ${producer}; CREATE ROLE ${bob} LOGIN IN ROLE ${producer};
  CREATE ROLE ${scheduler} LOGIN IN ROLE ${producer};
  GRANT CREATE, USAGE ON SCHEMA public TO ${owner};
  CREATE FUNCTION public.report(integer) RETURNS text LANGUAGE sql AS $$ SELECT 'report of ' || $1 $$`);
await pgTask.start(config);
const [asOwner, asAlice, asBob] = [await opened(owner), await opened(alice), await opened(bob)];
for (const sql of [grants, policies]) await asOwner.query(sql ?? "");

const mayNot = (client: Client, sql: string, state = "42501"): Promise<void> =>
  assert.rejects(client.query(sql), (error) => sqlState(error) === state, sql);

async function authorsSeen(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>("SELECT id FROM task ORDER BY id");
  const { rows: authors } = await admin.query<{ author: string }>(
    "SELECT DISTINCT author FROM task WHERE id = ANY ($1)",
    [rows.map(({ id }) => id)],
  );
  return authors.map(({ author }) => author);
}

it("runs the tasks of two producers, each of whom sees only their own", limit, async () => {
  const [first, second] = [await insertTask(asAlice, "SELECT 1"), await insertTask(asBob, "SELECT 2")];
  assert.equal((await waitForState(admin, first, "DONE")).output, "1");
  assert.equal((await waitForState(admin, second, "DONE")).output, "2");
  const look = "SELECT id, output FROM task";
  assert.deepEqual((await asAlice.query(look)).rows, [{ id: first, output: "1" }]);
  assert.deepEqual((await asBob.query(look)).rows, [{ id: second, output: "2" }]);
});

it("lets nobody change another's tasks or the columns reserved for pg-task", limit, async () => {
  const id = await insertTask(asBob, "SELECT pg_sleep(600)");
  await waitForRun(admin, id);
  for (const sql of ["UPDATE task SET state = 'STOP'", "DELETE FROM task WHERE plan < now()"]) {
    await asAlice.query(sql);
  }
  await waitForRun(admin, id);
  assert.deepEqual(await authorsSeen(asAlice), []);
  for (const column of ["owner", "pid", "take", "ready", "crash", "state", "parent", "author", "remote", "output"]) {
    await mayNot(asAlice, `INSERT INTO task (input, ${column}) VALUES ('SELECT 1', NULL)`);
  }
  for (const column of ["input", "owner", "pid", "author", "parent"]) {
    await mayNot(asBob, `UPDATE task SET ${column} = NULL`);
  }
  await mayNot(asBob, "SELECT remote FROM task");
  await mayNot(asBob, "SELECT * FROM task");
  await mayNot(asBob, "TABLE task_ledger_1");
  await mayNot(asBob, "INSERT INTO task_pause DEFAULT VALUES");
  await asBob.query("UPDATE task SET state = 'STOP' WHERE id = $1", [id]);
  await waitForRow(admin, "SELECT FROM task WHERE id = $1 AND state = 'STOP' AND stop IS NOT NULL", [id]);
});

it("lets no producer set a parent, and keeps the author of a repeated task", limit, async () => {
  await asAlice.query("SET pg_task.id = 7");
  await mayNot(asAlice, "INSERT INTO task (input) VALUES ('SELECT 1')");
  await asAlice.query("RESET pg_task.id");
  await asAlice.query("INSERT INTO task (input, repeat) VALUES ('SELECT 1', interval '1 day')");
  const repeated = await waitForRow<{ id: string }>(asAlice, "SELECT id FROM task WHERE parent IS NOT NULL");
  await asAlice.query("UPDATE task SET state = 'STOP' WHERE id = $1", [repeated.id]);
  assert.deepEqual(await authorsSeen(asAlice), [alice]);
  assert.deepEqual(await authorsSeen(asBob), [bob]);
});

it("hides no rows from a task, which runs as the table's owner", limit, async () => {
  const id = await insertTask(asAlice, "SELECT current_user, count(DISTINCT author) FROM task");
  const { output } = await waitForState(admin, id, "DONE");
  assert.equal(output, `current_user\tcount\n${owner}\t2`);
});

const jobAt = (time: string): string => `SELECT task_schedule('job', '${time}', 'SELECT 1')`;

it("lets a role with further grants schedule jobs by an upsert", limit, async () => {
  const asScheduler = await opened(scheduler);
  await mayNot(asScheduler, jobAt("0 3 1 1 *"));
  // A plain INSERT needs no more than what producers have.
  await asScheduler.query("INSERT INTO task (key, rule, input) VALUES ('plain', '0 3 1 1 *', 'SELECT 1')");
  await asOwner.query(upserts ?? "");
  for (const time of ["0 3 1 1 *", "0 4 1 1 *", "30 days", "0 5 1 1 *"]) await asScheduler.query(jobAt(time));
  const { rows } = await asScheduler.query("SELECT rule, state FROM task WHERE key = 'job'");
  assert.deepEqual(rows, [{ rule: "0 5 1 1 *", state: "PLAN" }]);
  for (const call of ["pause('job')", "resume('job')", "signal('job', '{}')", "run('job')", "unschedule('job')"])
    await asScheduler.query(`SELECT task_${call}`);
  await admin.query("SELECT pg_advisory_lock(1)");
  await asScheduler.query(
    "SELECT task_schedule('long', '1 hour', 'SELECT pg_advisory_lock_shared(1)'), task_run('long')",
  );
  await waitForRow(admin, "SELECT FROM task WHERE key = 'long' AND state = 'WORK'", []);
  const [, columns = ""] = /GRANT INSERT (\([^)]*\))/.exec(grants ?? "") ?? [];
  await asOwner.query(`GRANT SELECT ${columns} ON task TO ${scheduler}`);
  await asOwner.query("UPDATE task SET remote = 'host=elsewhere' WHERE key = 'long'");
  const pause = "SELECT task_pause('long')";
  await assert.rejects(asScheduler.query(pause), /cannot be changed: running/);
  await asOwner.query("UPDATE task SET remote = NULL WHERE key = 'long'");
  await asScheduler.query(pause);
  await admin.query("SELECT pg_advisory_unlock(1)");
  const change = (how: string): Promise<unknown> =>
    asScheduler.query(`SELECT task_${how}(id) FROM task WHERE key = 'plain' AND state IN ('PLAN', 'STOP')`);
  await change("stop");
  await change("retry");
  await asScheduler.query("DELETE FROM task WHERE plan > now()");
});

it("lets producers choose a job without writing SQL", limit, async () => {
  await asOwner.query(definers);
  await mayNot(asAlice, "INSERT INTO task (input) VALUES ('SELECT 1')");
  const { rows } = await asAlice.query<{ id: string }>("SELECT later_report(7) AS id");
  const { id } = only(rows);
  assert.equal((await waitForState(admin, id, "DONE")).output, "report of 7");
  assert.equal((await asAlice.query("SELECT FROM task WHERE id = $1", [id])).rowCount, 1);
  assert.equal((await asBob.query("SELECT FROM task WHERE id = $1", [id])).rowCount, 0);
});

it("reports policies that are forced on the owner, and continues once they are not", limit, async () => {
  await admin.query("ALTER TABLE task FORCE ROW LEVEL SECURITY");
  await insertTask(admin, "SELECT 1");
  const line = await pgTask.line(/^manager unavailable/);
  assert.match(String(line["reason"]), /affected by row-level security policy/);
  await admin.query("ALTER TABLE task NO FORCE ROW LEVEL SECURITY");
  await pgTask.line("serving table", 2);
  await waitForState(admin, await insertTask(admin, "SELECT 1"), "DONE");
});

it("needs only a role and a schema for an entry", limit, async () => {
  await admin.query(entrys ?? "");
  const entry = { data: name, user: mail, schema: mail };
  const other = await startPgTask({
    // No entry uses the role of the control connection.
    url: database.url.replace("postgres@", `${bob}@`),
    "pg_conf.name": "other",
    "pg_task.json": [entry],
  });
  await other.line("serving table");
  await admin.query(`INSERT INTO ${mail}.task (input) VALUES ('SELECT current_user')`);
  await waitForRow(admin, `SELECT FROM ${mail}.task WHERE state = 'DONE' AND output = '${mail}'`);
  await other.stop();
});
