import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { it } from "node:test";
import { join } from "node:path";
import { readRecord } from "../../../src/manager/schema/migrations.js";
import { taskTable } from "../../../src/manager/schema/taskTable.js";
import { sqlState } from "../../../src/shared/postgres/client.js";
import { TaskClient } from "../../../src/library/index.js";
import { cli } from "../../support/cli.js";
import { configFolder } from "../../support/configFile.js";
import { projectText } from "../../support/project.js";
import { only, waitForRow, type TaskRow } from "../../support/tasks.js";
import { collidingGroups, opened, password, UsersServer } from "../../support/users.js";
import { WebhookReceiver, webhookSecret } from "../../support/webhookReceiver.js";

const limit = { timeout: 120_000 };
const users = await UsersServer.start("superuser");
const { server, pgTask, admin, tasks, alice, bob, config } = users;
await admin.query(
  "CREATE TABLE effect (id bigint, as_user name DEFAULT current_user); GRANT INSERT, SELECT ON effect TO PUBLIC",
);

const running = async (id: string): Promise<TaskRow> =>
  await waitForRow<TaskRow>(admin, "SELECT id, pid, owner FROM task WHERE id = $1 AND state = 'WORK'", [id]);

/** A task that runs until the lock is released. */
async function held(lock: number): Promise<{ readonly input: string; readonly release: () => Promise<unknown> }> {
  await admin.query("SELECT pg_advisory_lock($1)", [lock]);
  const input = `SELECT pg_advisory_lock_shared(${lock}); SELECT pg_advisory_unlock_shared(${lock})`;
  return { input, release: () => admin.query("SELECT pg_advisory_unlock($1)", [lock]) };
}

it("a query in a rule runs as the role, and so do the runs that it plans", limit, async () => {
  await alice.query(`CREATE FUNCTION public.next_time() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN
    RETURN CASE current_user WHEN 'alice' THEN '2999-01-01'::timestamptz END; END $$`);
  const id = await users.insert(alice, "SELECT 1", { rule: "SELECT public.next_time()" });
  const { plan } = await waitForRow<{ plan: Date }>(
    admin,
    "SELECT plan::text FROM task WHERE id = $1 AND wait IS NULL",
    [id],
  );
  assert.match(String(plan), /^2999/);
});

it("successors, retries and tasks of triggers keep the role", limit, async () => {
  const id = await users.insert(alice, "SELECT current_user", { repeat: "1 hour" });
  await users.ended(id);
  const { role } = await waitForRow<{ role: string }>(admin, "SELECT role::text AS role FROM task WHERE parent = $1", [
    id,
  ]);
  assert.equal(role, "alice");
  const tried = await users.run(
    alice,
    "SELECT 1 / (attempt::int) FROM (SELECT coalesce(attempt, 0) AS attempt FROM public.task WHERE id = current_setting('pg_task.id')::bigint) AS t",
    { retry: 2, backoff: "1 ms", sqlstate: ["22"] },
  );
  assert.deepEqual([tried.state, tried.output], ["DONE", "1"]);
  await alice.query(`CREATE TABLE public.orders (id int);
    CREATE TRIGGER later AFTER INSERT ON public.orders FOR EACH ROW
      EXECUTE FUNCTION public.task_async('INSERT INTO public.effect VALUES (77)')`);
  await alice.query("INSERT INTO public.orders VALUES (1)");
  const { as_user: ran } = await waitForRow<{ as_user: string }>(
    admin,
    "SELECT as_user::text AS as_user FROM effect WHERE id = 77",
    [],
  );
  assert.equal(ran, "alice");
});

it("only the owner's tasks run alone, whoever claims to be the manager", limit, async () => {
  await assert.rejects(
    users.insert(alice, "SELECT 1", { alone: "table" }),
    (error) => sqlState(error) === "42501" && /only tasks of role tasks can run alone/.test(String(error)),
  );
  const { input, release } = await held(44);
  await alice.query("SET pgtask.manager = 'on'");
  const id = await users.insert(alice, input, { alone: "table" });
  await alice.query("RESET pgtask.manager");
  await running(id);
  assert.equal((await users.run(bob, "SELECT 1")).state, "DONE");
  await release();
  await users.ended(id);
  assert.equal((await users.run(tasks, "SELECT 1", { alone: "table" })).state, "DONE");
});

it("the ends of everybody's tasks are told to webhooks, which no author can read or write", limit, async () => {
  const receiver = await WebhookReceiver.started();
  await pgTask.reload({ ...config, "pg_http.webhooks": [{ url: receiver.url(), secret: webhookSecret }] });
  await waitForRow(admin, "SELECT FROM pg_trigger WHERE tgname LIKE 'task_webhook%' HAVING count(*) = 2");
  const { id } = await users.run(alice, "SELECT 1/0");
  assert.equal((await receiver.endOf(id)).body.type, "task.fail");
  const planned = await users.insert(bob, "SELECT 1", { plan: "infinity" });
  await bob.query("UPDATE task SET state = 'STOP' WHERE id = $1", [planned]);
  assert.equal((await receiver.endOf(planned)).body.type, "task.stop");
  for (const sql of ["SELECT FROM task_outbox", "SELECT FROM task_webhooks", "DELETE FROM task_outbox"])
    await assert.rejects(alice.query(sql), (error) => sqlState(error) === "42501");
  const { error } = await users.run(bob, "DELETE FROM public.task_outbox");
  assert.match(error ?? "", /permission denied for table task_outbox/);
  await pgTask.reload(config);
  await pgTask.line("webhooks changed", 2);
});

it("a remote task does not borrow what the owner could do there", limit, async () => {
  const refused = await users.run(alice, "SELECT current_user", { remote: "dbname=shop" });
  assert.match(refused.error ?? "", /password is required/);
  const done = await users.run(alice, "SELECT current_user, session_user", {
    remote: `dbname=shop password='${password}'`,
    header: false,
  });
  assert.equal(done.output, "alice\talice");
});

it("a running task is stopped, timed out and rescued", limit, async () => {
  const { input, release } = await held(1);
  const stopped = await users.insert(alice, input);
  await running(stopped);
  await alice.query("UPDATE task SET state = 'STOP' WHERE id = $1", [stopped]);
  assert.equal((await users.ended(stopped)).state, "STOP");
  const late = await users.run(alice, "SELECT pg_sleep(100); SELECT 1", { timeout: "1 s" });
  assert.match(late.error ?? "", /statement timeout/);
  const lost = await users.insert(alice, `INSERT INTO public.effect VALUES (5); ${input}`);
  const { pid } = await running(lost);
  await admin.query("SELECT pg_terminate_backend($1)", [pid]);
  await release();
  assert.equal((await users.ended(lost)).state, "DONE");
  const { rows } = await admin.query("SELECT as_user::text FROM effect WHERE id = 5");
  assert.deepEqual(rows, [{ as_user: "alice" }]);
});

it("what has been committed is not run again, though its session has not reported it", limit, async () => {
  const { input, release } = await held(2);
  const id = await users.insert(alice, `INSERT INTO public.effect VALUES (6); ${input}`);
  const { pid } = await running(id);
  const { rows: before } = await admin.query<{ count: string }>(
    "SELECT count(*) FROM (TABLE task_ledger_1 UNION ALL TABLE task_ledger_2) AS l",
  );
  await release();
  await users.ended(id);
  const { rows: proofs } = await admin.query(
    "SELECT running FROM (TABLE task_ledger_1 UNION ALL TABLE task_ledger_2) AS l WHERE id = $1",
    [id],
  );
  assert.deepEqual(proofs, [{ running: true }], `${pid} ${before[0]?.count}`);
});

it("each role has groups and keys of its own", limit, async () => {
  const { input, release } = await held(3);
  const hers = await users.insert(alice, input, { group: "shared", key: "k" });
  await running(hers);
  assert.equal((await users.run(bob, "SELECT 1", { group: "shared", key: "k" })).output, "1");
  const second = await users.insert(alice, "SELECT 2", { group: "other", key: "k" });
  await assert.rejects(users.insert(alice, "SELECT 3", { key: "k" }), (error) => sqlState(error) === "23505");
  await release();
  assert.equal((await users.ended(second)).output, "2");
});

it("jobs by name belong to a role", limit, async () => {
  const plan = "SELECT task_schedule('nightly', '0 3 1 1 *', 'SELECT current_user') AS id";
  const [hers, his] = [
    only((await alice.query<{ id: string }>(plan)).rows).id,
    only((await bob.query<{ id: string }>(plan)).rows).id,
  ];
  assert.notEqual(hers, his);
  assert.equal(only((await alice.query<{ id: string }>(plan.replace("3", "4"))).rows).id, hers);
  assert.deepEqual((await bob.query("SELECT rule, role::text AS role FROM task WHERE id = $1", [his])).rows, [
    { rule: "0 3 1 1 *", role: "bob" },
  ]);
  // The owner, who sees both, has jobs of its own.
  await assert.rejects(tasks.query("SELECT task_run('nightly')"), (error) => sqlState(error) === "P0002");
  await alice.query("SELECT task_run('nightly')");
  assert.equal((await users.ended(hers)).output, "alice");
  assert.deepEqual((await alice.query("SELECT task_unschedule('nightly') AS done")).rows, [{ done: true }]);
  assert.equal((await bob.query("SELECT FROM task WHERE id = $1 AND state = 'PLAN'", [his])).rowCount, 1);
  const folder = await configFolder(config);
  await writeFile(
    join(folder, "jobs.json"),
    JSON.stringify({ jobs: { nightly: { rule: "0 5 1 1 *", input: "SELECT 1" } } }),
  );
  const applied = await cli(["apply", "jobs.json"], { cwd: folder });
  assert.equal(applied.code, 0, applied.stderr);
  assert.deepEqual((await bob.query("SELECT rule FROM task WHERE id = $1", [his])).rows, [{ rule: "0 3 1 1 *" }]);
});

it("tasks of two roles whose groups have the same hash run as their own", limit, async () => {
  const { hers, his } = collidingGroups;
  const ids: string[] = [];
  for (let n = 0; n < 6; n += 1) {
    ids.push(await users.insert(alice, "SELECT current_user", { group: hers }));
    ids.push(await users.insert(bob, "SELECT current_user", { group: his }));
  }
  const { rows: hashes } = await admin.query("SELECT DISTINCT hash FROM task WHERE id = ANY ($1)", [ids]);
  assert.equal(hashes.length, 1);
  const outputs: (string | null)[] = [];
  for (const id of ids) outputs.push((await users.ended(id)).output);
  assert.deepEqual(outputs, Array.from({ length: 6 }, () => ["alice", "bob"]).flat());
});

it("the library, the commands and the metrics know the roles", limit, async () => {
  const client = new TaskClient(alice);
  const id = await client.add({ input: "SELECT current_user", key: "mine", plan: "infinity" });
  assert.equal(
    await client.add({ input: "SELECT current_user", key: "mine", plan: "infinity" }, { ifKeyTaken: "join" }),
    id,
  );
  assert.equal((await client.get(id))?.role, "alice");
  const found: string[] = [];
  for await (const each of client.list({ role: "alice", key: "mine" })) found.push(each.id);
  assert.deepEqual(found, [id]);
  const { cwd } = { cwd: await configFolder(config) };
  const listed = await cli(["list", "--role", "bob", "--json"], { cwd });
  const { tasks: bobs } = JSON.parse(listed.stdout);
  assert.ok(bobs.length > 0 && bobs.every(({ role }: { role: string }) => role === "bob"));
  const added = await cli(["add", "SELECT current_user", "--role", "bob", "--wait"], { cwd });
  assert.match(added.stdout, /bob/);
  const checks = await cli(["doctor"], { cwd });
  assert.match(checks.stdout, /pg_read_all_stats/);
  await tasks.query("GRANT REFERENCES (id) ON task TO bob");
  assert.match((await cli(["doctor"], { cwd })).stdout, /REVOKE TRIGGER, REFERENCES ON .* FROM bob/);
  await tasks.query("REVOKE REFERENCES (id) ON task FROM bob");
});

it("a role that may not log in any more, and one that is gone, let their tasks fail at once", limit, async () => {
  await admin.query(
    `CREATE ROLE carol LOGIN PASSWORD '${password}'; GRANT USAGE ON SCHEMA public TO carol; GRANT INSERT, SELECT ON task TO carol; GRANT USAGE ON SEQUENCE task_id_seq TO carol`,
  );
  await tasks.query("INSERT INTO task_role VALUES ('carol', 'task_carol')");
  const carol = await opened(server, "carol", "shop");
  assert.equal((await users.run(carol, "SELECT 1", { retry: 5 })).output, "1");
  await admin.query("ALTER ROLE task_carol NOLOGIN");
  const refused = await users.run(carol, "SELECT 1", { retry: 5 });
  assert.equal(refused.state, "FAIL");
  assert.match(refused.error ?? "", /may not log in[^]*28000/);
  const planned = await users.insert(carol, "SELECT 1", { plan: "infinity", repeat: "1 hour" });
  await carol.end();
  await admin.query(
    "REVOKE ALL ON task, task_id_seq FROM carol; REVOKE ALL ON SCHEMA public FROM carol; DROP ROLE carol",
  );
  await admin.query("UPDATE task SET plan = now() WHERE id = $1", [planned]);
  assert.match((await users.ended(planned)).error ?? "", /does not exist any more/);
  // A dropped role's rows hide nothing from the others.
  assert.ok((await alice.query("SELECT FROM task_stats")).rows.length > 0);
  assert.equal((await users.run(bob, "SELECT 1")).output, "1");
});

it("a role is removed, and another renamed, as the documents say", limit, async () => {
  const text = projectText("docs/users.md");
  const [removal = ""] = /^DELETE FROM task_role[^]*?(?=^```$)/m.exec(text) ?? [];
  const [, renaming = ""] = /`(UPDATE task SET role = 'robert'[^`]*)`/.exec(text) ?? [];
  await admin.query("CREATE ROLE frank; CREATE ROLE gina; GRANT USAGE ON SCHEMA public TO frank, gina");
  await tasks.query("INSERT INTO task_role VALUES ('frank', 'task_frank'), ('gina', 'task_gina')");
  const { input, release } = await held(4);
  const id = await users.insert(tasks, input, { role: "frank", repeat: "1 microsecond" });
  await running(id);
  await admin.query(removal.replaceAll("bob", "frank"));
  await waitForRow(admin, "SELECT FROM pg_roles HAVING NOT bool_or(rolname IN ('frank', 'task_frank'))", []);
  await release();
  const hers = await users.insert(tasks, "SELECT current_user", { role: "gina", plan: "infinity", header: false });
  await admin.query("ALTER ROLE gina RENAME TO robert");
  await tasks.query(
    "INSERT INTO task_role VALUES ('robert', 'task_robert'); DELETE FROM task_role WHERE role = 'gina'",
  );
  await tasks.query(renaming.replace("'bob'", "'gina'"));
  await tasks.query("UPDATE task SET plan = now() WHERE id = $1", [hers]);
  assert.equal((await users.ended(hers)).output, "robert");
  assert.deepEqual((await admin.query("SELECT FROM task WHERE role = 'frank'")).rows, []);
});

it("an administrator's login serves if it is the role itself, and not if it is more than the role", limit, async () => {
  await admin.query(`CREATE ROLE dave LOGIN; CREATE ROLE robot LOGIN PASSWORD '${password}' IN ROLE dave, bob;
    GRANT USAGE ON SCHEMA public TO dave`);
  await tasks.query("INSERT INTO task_role VALUES ('dave', 'robot')");
  const id = await users.insert(tasks, "SELECT 1", { role: "dave" });
  await pgTask.line("cannot open a session of a role, its tasks wait");
  assert.equal(
    only((await admin.query<{ state: string }>("SELECT state::text AS state FROM task WHERE id = $1", [id])).rows)
      .state,
    "PLAN",
  );
  await tasks.query("DELETE FROM task WHERE id = $1", [id]);
});

it("a login of its own gets its password from the password file, though the entry has one", limit, async () => {
  const { cwd } = { cwd: await configFolder(config) };
  const file = join(cwd, "passwords");
  await writeFile(file, `*:*:*:erin:${password}\n`, { mode: 0o600 });
  const control = server.urlOf("postgres", "the control password", "postgres");
  await pgTask.reload({ ...config, url: `${control}?passfile=${encodeURIComponent(file)}` });
  await admin.query(`CREATE ROLE erin LOGIN PASSWORD '${password}'; GRANT USAGE ON SCHEMA public TO erin`);
  await tasks.query("INSERT INTO task_role VALUES ('erin', 'erin')");
  assert.equal((await users.run(tasks, "SELECT session_user", { role: "erin", header: false })).output, "erin");
  await pgTask.reload(config);
});

it("a table with tasks gets users, and its waiting tasks run as before", limit, async () => {
  const entry = { data: "shop", user: "tasks", password, table: "old" };
  const from = pgTask.lines.length;
  await pgTask.reload({ ...config, "pg_task.json": [...users.entries, entry] });
  await pgTask.logged(({ msg, table }) => msg === "serving table" && table === "public.old", from);
  const add = "INSERT INTO old (input, plan) VALUES ('SELECT session_user', $1) RETURNING id, hash";
  const before = only((await tasks.query<{ id: string; hash: number }>(add, ["infinity"])).rows);
  await pgTask.reload({ ...config, "pg_task.json": [...users.entries, { ...entry, users: true }] });
  await pgTask.logged(({ msg, table }) => msg === "tasks run as their users" && table === "public.old", from);
  await tasks.query(`INSERT INTO old_role VALUES ('alice', 'task_alice'); GRANT INSERT, SELECT ON old TO alice;
    GRANT USAGE ON SEQUENCE old_id_seq TO alice; UPDATE old SET plan = now() WHERE id = ${before.id}`);
  const hers = only((await alice.query<{ id: string; hash: number }>(add, [new Date()])).rows);
  assert.notEqual(hers.hash, before.hash);
  const ended = "SELECT output, hash FROM old WHERE id = $1 AND state = 'DONE'";
  assert.deepEqual(await waitForRow(admin, ended, [before.id]), { output: "tasks", hash: before.hash });
  assert.deepEqual(await waitForRow(admin, ended, [hers.id]), { output: "task_alice", hash: hers.hash });
  await pgTask.reload(config);
});

it("a table with users is renamed and moved, and its tasks run as their users", limit, async () => {
  const entry = { data: "shop", user: "tasks", password, users: true };
  const from = pgTask.lines.length;
  const served = async (schema: string, table: string, since: number): Promise<unknown> => {
    await pgTask.reload({ ...config, "pg_task.json": [...users.entries, { ...entry, schema, table }] });
    return await pgTask.logged((line) => line.msg === "serving table" && line["table"] === `${schema}.${table}`, since);
  };
  await served("public", "first", from);
  await tasks.query("INSERT INTO first_role VALUES ('alice', 'task_alice')");
  await pgTask.reload(config);
  await admin.query(`CREATE SCHEMA IF NOT EXISTS place AUTHORIZATION tasks; GRANT USAGE ON SCHEMA place TO alice, bob;
    ALTER TABLE public.first SET SCHEMA place; ALTER TABLE place.first RENAME TO second`);
  const later = pgTask.lines.length;
  await served("place", "second", later);
  await tasks.query(`GRANT INSERT, SELECT ON place.second TO alice, bob; GRANT USAGE ON SEQUENCE place.first_id_seq TO alice, bob;
    INSERT INTO place.second_role VALUES ('bob', 'task_bob')`);
  for (const [client, name] of [
    [alice, "alice"],
    [bob, "bob"],
  ] as const) {
    const add = "INSERT INTO place.second (input, header) VALUES ('SELECT current_user', false) RETURNING id";
    const { id } = only((await client.query<{ id: string }>(add)).rows);
    await waitForRow(admin, "SELECT FROM place.second WHERE id = $1 AND state = 'DONE' AND output = $2", [id, name]);
    const { rows: seen } = await client.query("SELECT DISTINCT role::text AS role FROM place.second");
    assert.deepEqual(seen, [{ role: name }]);
  }
  const policies = await admin.query(
    "SELECT polname::text AS name FROM pg_policy WHERE polrelid = 'place.second'::regclass",
  );
  assert.deepEqual(policies.rows, [{ name: "second_own" }]);
  await pgTask.reload(config);
});

it("without users in its entry, a table with users is not served", limit, async () => {
  const { cwd } = {
    cwd: await configFolder({ ...config, "pg_task.json": [{ data: "shop", user: "tasks", password }] }),
  };
  const { stdout } = await cli(["check"], { cwd });
  assert.match(stdout, /its entry does not say "users": true/);
  // Earlier builds, which do not know users and have up to version 7, refuse the table because of its version.
  assert.ok((await readRecord(admin, taskTable("public", "task"))).version > 7);
  await pgTask.reload({ ...config, "pg_task.json": [{ data: "shop", user: "tasks", password }] });
  const line = await pgTask.logged(
    ({ msg, reason }) => msg === "manager unavailable, retrying" && /does not say/.test(String(reason)),
  );
  assert.ok(line);
  const id = await users.insert(alice, "SELECT 1");
  await pgTask.reload(config);
  assert.equal((await users.ended(id)).state, "DONE");
});
