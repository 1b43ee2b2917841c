import assert from "node:assert/strict";
import { it } from "node:test";
import { z } from "zod";
import { noBrowserReason } from "../../support/browser.js";
import { cli } from "../../support/cli.js";
import { configFolder } from "../../support/configFile.js";
import { openPage } from "../../support/page.js";
import { waitForRow } from "../../support/tasks.js";
import { password, UsersServer } from "../../support/users.js";
import { token, Web } from "../../support/web.js";

const limit = { timeout: 120_000 };
const http = { "pg_http.listen": "127.0.0.1:0", "pg_http.token": token };
const users = await UsersServer.start("superuser", {}, http);
const { pgTask, admin, tasks, alice, bob, config } = users;
const web = await Web.connect(pgTask);
const folder = { cwd: await configFolder(config) };
const table = await web.tableId();

const held = `SELECT pg_advisory_lock_shared(1)`;
const why = async (id: string): Promise<string> => (await cli(["why", id], folder)).stdout;

/** Calls until the answer matches. */
async function until(ask: () => Promise<string>, expected: RegExp): Promise<void> {
  while (!expected.test(await ask()));
}

/** A line of the metrics. */
const of = (name: string, role: string, value: number): RegExp =>
  new RegExp(`^pg_task_role_${name}\\{[^}]*table="task",role="${role}"\\} ${value}$`, "m");

it("metrics show the sessions and the problem of each role", limit, async () => {
  await users.run(bob, "SELECT 1");
  const text = await web.metricsUntil((found) => of("sessions", "bob", 1).test(found));
  for (const each of [of("sessions", "alice", 0), of("problem", "alice", 0), of("problem", "bob", 0)])
    assert.match(text, each);
  await admin.query("ALTER ROLE task_bob NOLOGIN");
  await web.metricsUntil((found) => of("problem", "bob", 1).test(found) && of("problem", "alice", 0).test(found));
  await admin.query("ALTER ROLE task_bob LOGIN");
});

it("why names the limit of a role, and what keeps it from logging in; neither is a stall", limit, async () => {
  await admin.query("SELECT pg_advisory_lock(1)");
  const running: string[] = [];
  for (let n = 0; n < 3; n += 1) running.push(await users.insert(alice, held));
  for (const id of running) await waitForRow(admin, "SELECT FROM task WHERE id = $1 AND state = 'WORK'", [id]);
  const limited = await users.insert(alice, "SELECT 1");
  await until(() => why(limited), /it runs as role alice, whose login task_alice has 3 of at most 3 sessions/);
  await admin.query("REVOKE CONNECT ON DATABASE shop FROM PUBLIC; GRANT CONNECT ON DATABASE shop TO tasks, alice");
  await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'task_bob'");
  const refused = await users.insert(bob, "SELECT 1");
  await until(() => why(refused), /it runs as role bob, whose tasks fail or wait: its login may not connect/);
  await pgTask.line("cannot open a session of a role, its tasks wait");
  // The monitor of stalls looks at the table each 2.5 s, and reports what lasts for some of these times.
  const looks = "SELECT FROM pg_stat_database WHERE datname = 'shop' AND now() > $1::timestamptz + interval '12 s'";
  await waitForRow(admin, looks, [new Date().toISOString()]);
  assert.deepEqual(pgTask.linesMatching("due tasks do not start"), []);
  await admin.query("GRANT CONNECT ON DATABASE shop TO PUBLIC; SELECT pg_advisory_unlock(1)");
  for (const id of [...running, limited, refused]) assert.equal((await users.ended(id)).state, "DONE");
});

it("why, doctor and the metrics say that no session of a role can be opened, and blame no trigger", limit, async () => {
  await admin.query(`CREATE ROLE robot LOGIN PASSWORD '${password}' IN ROLE alice, bob`);
  await tasks.query("UPDATE task_role SET login = 'robot' WHERE role = 'bob'");
  await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'task_bob'");
  const id = await users.insert(bob, "SELECT 1");
  await until(
    () => why(id),
    /it runs as role bob, whose tasks fail or wait: no session could be opened for it: the log/,
  );
  await web.metricsUntil((found) => of("problem", "bob", 1).test(found) && of("problem", "alice", 0).test(found));
  const { stdout } = await cli(["doctor"], folder);
  assert.match(stdout, /tasks of role bob cannot run: no session could be opened for it/);
  assert.doesNotMatch(stdout + (await why(id)), /task_author/);
  await tasks.query("UPDATE task_role SET login = 'task_bob' WHERE role = 'bob'");
  assert.equal((await users.ended(id)).state, "DONE");
  await web.metricsUntil((found) => of("problem", "bob", 0).test(found));
});

it("why, doctor and the metrics say that a role with waiting tasks is not listed any more", limit, async () => {
  await admin.query("CREATE ROLE carol");
  await tasks.query("INSERT INTO task_role VALUES ('carol', 'task_carol')");
  const id = await users.insert(tasks, "SELECT 1", { role: "carol", plan: "infinity" });
  await tasks.query("DELETE FROM task_role WHERE role = 'carol'");
  assert.match(await why(id), /role carol, whose tasks fail or wait: it is not in the list of roles/);
  await web.metricsUntil((found) => of("problem", "carol", 1).test(found));
  const { stdout } = await cli(["doctor"], folder);
  assert.match(
    stdout,
    /INSERT INTO "public"."task_role" \(role, login\) VALUES \('carol', 'task_carol'\), or DELETE FROM/,
  );
  await tasks.query("UPDATE task SET plan = now() WHERE id = $1", [id]);
  assert.equal((await users.ended(id)).state, "FAIL");
  assert.match(
    await why(id),
    /first correct what keeps tasks of role carol from running \(it is not in the list of roles\); then pg-task retry/,
  );
});

const listSchema = z.object({ tasks: z.array(z.object({ id: z.string(), role: z.string().nullable() })) });

const list = async (role: string): Promise<z.infer<typeof listSchema>["tasks"]> =>
  (await web.get(listSchema, `/api/tables/${table}/tasks?role=${encodeURIComponent(role)}`)).tasks;

it("the API filters by role, and takes the name for nothing else", limit, async () => {
  const his = await users.insert(bob, "SELECT 1", { plan: "infinity" });
  const found = await list("bob");
  assert.ok(found.some(({ id }) => id === his) && found.every(({ role }) => role === "bob"));
  for (const role of ["bob' OR 'a' = 'a", "%", "BOB", "bob, alice"]) assert.deepEqual(await list(role), [], role);
});

const hostile = `"><img src=x onerror="window.broken = 1"><script>window.broken = 1</script>\${window.broken = 1}`;

it("the page filters by role, and shows what a role writes as text", { ...limit, skip: noBrowserReason }, async () => {
  const [his, hers] = [
    await users.insert(bob, "SELECT 'his'", { plan: "infinity", group: "bob's group" }),
    await users.insert(alice, `SELECT '${hostile.replaceAll("'", "''")}'`, {
      group: hostile,
      data: hostile,
      key: hostile,
    }),
  ];
  await users.ended(hers);
  await tasks.query(`INSERT INTO task_pause ("group", reason) VALUES ($1, $1)`, [hostile]);
  const page = await openPage(web, `/tables/${table}/tasks/${his}`);
  await page.getByRole("link", { name: "bob", exact: true }).click();
  await page.locator(`tr[data-id="${his}"]`).waitFor();
  assert.equal(await page.locator(`tr[data-id="${hers}"]`).count(), 0);
  await page.getByLabel("Role (exact match)").fill("");
  await page.locator(`tr[data-id="${hers}"]`).waitFor();
  for (const path of ["", "/tasks", `/tasks/${hers}`, "/schedules"]) {
    await page.goto(`${web.url}/tables/${table}${path}`);
    if (path !== "/schedules") await page.getByText("window.broken").first().waitFor();
    assert.equal(await page.evaluate("typeof window.broken"), "undefined", path);
  }
});

it("thousands of tasks of a role keep no other role from getting a session", limit, async () => {
  const before = "SELECT count(*)::int AS n FROM pg_stat_activity WHERE usename LIKE 'task\\_%'";
  await bob.query(
    `INSERT INTO task (input, "group", max) SELECT 'SELECT pg_sleep(3600)', 'flood', 100000 FROM generate_series(1, 10000)`,
  );
  await waitForRow(admin, `SELECT FROM (${before}) AS a WHERE n >= 5`, []);
  for (let n = 0; n < 3; n += 1) {
    assert.equal((await users.run(alice, "SELECT 'hers'", { header: false })).output, "hers");
    assert.equal((await users.run(tasks, "SELECT 'own'", { header: false })).output, "own");
  }
  const { rows } = await admin.query<{ n: number; free: number }>(
    `SELECT n, current_setting('max_connections')::int - (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS free FROM (${before}) AS a`,
  );
  assert.ok((rows[0]?.free ?? 0) >= 10, `${rows[0]?.n} sessions, ${rows[0]?.free} connections free`);
  await bob.query(`UPDATE task SET state = 'STOP' WHERE "group" = 'flood' AND state IN ('PLAN', 'TAKE', 'WORK')`);
  assert.equal((await users.run(bob, "SELECT 'again'", { header: false })).output, "again");
});
