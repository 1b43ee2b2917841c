import assert from "node:assert/strict";
import { before, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { connectTo } from "../../support/connectTo.js";
import { createDatabase } from "../../support/database.js";
import { Pm2 } from "../../support/pm2.js";
import { rowsOf, insertTask, waitForRow, waitForRun, waitForState } from "../../support/tasks.js";
import { occupyPort, token } from "../../support/web.js";

const database = await createDatabase();
const client = await database.connect();
const { server: holder, port } = await occupyPort();
const config = { url: database.url, "pg_http.listen": `127.0.0.1:${port}`, "pg_http.token": { env: "PAGE_TOKEN" } };
const pm2 = await Pm2.create(config);

/** Time limit of a test. It is long because each PM2 command takes a second or two. */
const limit = { timeout: 180_000 };

const supervisors = "SELECT FROM pg_stat_activity WHERE application_name = 'pg_conf' AND datname = current_database()";

/** Returns the pid of the running process that logged this message most recently. */
async function pidThatLogged(msg: string): Promise<number> {
  const running = new Set((await pm2.processes()).map(({ pid }) => pid));
  const logged = (await pm2.lines()).filter((line) => line.msg === msg && running.has(line.pid));
  const last = logged.toSorted((a, b) => String(a["time"]).localeCompare(String(b["time"]))).at(-1);
  assert.ok(last, `no running process logged ${msg}`);
  return last.pid;
}

async function linesOf(pid: number): Promise<string[]> {
  return (await pm2.lines()).filter((line) => line.pid === pid).map(({ msg }) => msg);
}

/** Waits until the leader answers on the port of the page. */
async function leaderHasPage(): Promise<void> {
  for (;;) {
    const text = await fetch(`http://127.0.0.1:${port}/health`).then((answer) => answer.text(), String);
    if (text.includes('"role":"leader"')) return;
    await pause(100);
  }
}

before(async () => {
  holder.close();
  await client.query("CREATE TABLE effect (id bigint)");
  await pm2.start({ PAGE_TOKEN: token });
});

it("runs under PM2 as a leader and a standby", limit, async () => {
  const processes = await pm2.processes();
  assert.deepEqual(
    processes.map(({ pm2_env: { status, restart_time } }) => ({ status, restart_time })),
    Array.from({ length: 2 }, () => ({ status: "online", restart_time: 0 })),
  );
  assert.notEqual(await pidThatLogged("ready"), await pidThatLogged("standby"));
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await leaderHasPage();
});

it("loses no task and runs none twice during a reload", limit, async (context) => {
  const over = new AbortController();
  const reload = pm2.command("reload", "pg-task").finally(() => over.abort());
  let inserted = 0;
  while (!over.signal.aborted) {
    inserted += 1;
    await insertTask(client, `INSERT INTO effect VALUES (${inserted})`, { group: `group${inserted % 10}` });
    await pause(10);
  }
  await reload;
  await waitForRow(client, `SELECT FROM task WHERE state = 'DONE' AND input ~ 'effect' HAVING count(*) = ${inserted}`);
  const { rows } = await client.query<{ effects: number; distinct: number }>(
    `SELECT count(*)::int AS effects, count(DISTINCT id)::int AS distinct FROM effect`,
  );
  assert.deepEqual(rows, [{ effects: inserted, distinct: inserted }]);
  assert.deepEqual(
    (await pm2.processes()).map(({ pm2_env }) => pm2_env.restart_time),
    [1, 1],
  );
  const longest = await waitForRow<{ ms: number }>(
    client,
    `SELECT round(extract(epoch FROM max(pause)) * 1000)::int AS ms FROM
       (SELECT start - lag(start) OVER (ORDER BY start) AS pause FROM task WHERE input ~ 'effect') AS t`,
  );
  context.diagnostic(`${inserted} tasks, the longest pause between two was ${longest.ms} ms`);
});

it("finishes a long task during a reload while the new leader runs others", limit, async () => {
  const leader = await pidThatLogged("ready");
  const gate = await connectTo(database.url);
  await gate.query("SELECT pg_advisory_lock(1)");
  const effect = "INSERT INTO effect VALUES (-1)";
  const id = await insertTask(client, `SELECT pg_advisory_xact_lock_shared(1); ${effect}`);
  const started = await waitForRun(client, id);
  const reload = pm2.command("reload", "pg-task");
  while ((await pidThatLogged("ready")) === leader) await pause(50);
  const next = await insertTask(client, "SELECT 'next'");
  for (const group of ["new", "other"]) {
    await waitForState(client, await insertTask(client, "SELECT 3", { group }), "DONE");
  }
  // The group limit allows no other task while the first one runs.
  await waitForState(client, next, "PLAN");
  const meanwhile = await waitForRun(client, id);
  assert.deepEqual([meanwhile.owner, meanwhile.pid], [started.owner, started.pid]);
  await gate.end();
  const row = await waitForState(client, id, "DONE");
  assert.deepEqual([row.pid, row.crash], [started.pid, 0]);
  await waitForState(client, next, "DONE");
  await reload;
  assert.equal((await rowsOf(client, "SELECT FROM effect WHERE id = -1")).length, 1);
  assert.equal((await linesOf(leader)).at(-1), "stopped");
  await leaderHasPage();
});

it("reloads its configuration when PM2 sends SIGHUP", limit, async () => {
  await pm2.configure({ ...config, "pg_task.sleep": 123 });
  await pm2.command("sendSignal", "SIGHUP", "pg-task");
  await waitForRow(
    client,
    `SELECT FROM pg_stat_activity WHERE application_name = 'pg_work public task 123' AND datname = current_database()`,
  );
});

it("fails over to the standby when the leader is killed, and PM2 restarts the leader as a standby", limit, async () => {
  const leader = await pidThatLogged("became leader");
  const standby = await pidThatLogged("standby");
  assert.notEqual(leader, standby);
  process.kill(leader, "SIGKILL");
  await waitForState(client, await insertTask(client, "SELECT 2"), "DONE");
  assert.ok((await linesOf(standby)).includes("ready"));
  await leaderHasPage();
  await waitForRow(client, `${supervisors} HAVING count(*) = 2`);
});

it("starts from PM2's saved list, with the environment and in the folder of its first start", limit, async () => {
  await pm2.command("save");
  const ended = (await pm2.processes()).map(({ pid }) => pid);
  await pm2.command("kill");
  for (const pid of ended) assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });
  await pm2.resurrect();
  await waitForState(client, await insertTask(client, "SELECT 4"), "DONE");
  const now = await pm2.processes();
  assert.deepEqual(
    now.map(({ pm2_env }) => pm2_env.status),
    ["online", "online"],
  );
  assert.ok(now.every(({ pid }) => !ended.includes(pid)));
  await leaderHasPage();
  const { status } = await fetch(`http://127.0.0.1:${port}/api/tables`, {
    headers: { Authorization: `Bearer ${token}` },
  });
  assert.equal(status, 200);
});

it("leaves no process and no connection after PM2 stops it", limit, async () => {
  const pids = (await pm2.processes()).map(({ pid }) => pid);
  await pm2.command("stop", "pg-task");
  for (const pid of pids) assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });
  const { rows } = await client.query(
    "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
  );
  assert.deepEqual(rows, []);
  for (const pid of pids) assert.equal((await linesOf(pid)).at(-1), "stopped");
});

it("is not restarted endlessly by PM2 when its configuration is invalid", limit, async () => {
  await pm2.configure({ ...config, nonsense: 1 });
  await pm2.command("start", "pg-task");
  for (;;) {
    const processes = await pm2.processes();
    if (processes.every(({ pm2_env }) => pm2_env.status === "stopped")) break;
    await pause(100);
  }
});
