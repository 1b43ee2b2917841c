import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { connectTo } from "../../support/connectTo.js";
import { RestartableServer } from "../../support/restartableServer.js";
import type { LogLine } from "../../support/logLines.js";
import { PgTask } from "../../support/pgTask.js";
import { insertTask, waitForRun, waitForState, waitForRow } from "../../support/tasks.js";
import { cli } from "../../support/cli.js";
import { doctor } from "../../support/doctor.js";
import { startProcess } from "../../support/process.js";
import { listen } from "../../support/listen.js";

const program = new PgTask();
const server = await RestartableServer.create();
const env = { DATABASE_URL: server.url };

/** Returns the log lines that repeat the message and reason of an earlier line of the same thread. */
function repetitions(lines: readonly LogLine[]): string[] {
  const seen = new Set<string>();
  return lines.flatMap(({ name, msg, ...rest }) => {
    const text = `${name}: ${msg} ${JSON.stringify(rest["reason"])}`;
    const repeated = seen.has(text);
    seen.add(text);
    return repeated ? [text] : [];
  });
}

async function runOne(input: string): Promise<void> {
  const client = await connectTo(server.url);
  await waitForState(client, await insertTask(client, input), "DONE");
  await client.end();
}

it("waits for an unreachable server, logs its address once, and continues when it is up", async () => {
  program.launch(undefined, { env });
  const line = await program.line("control connection failed, retrying");
  assert.ok(Number.isInteger(line["pauseMs"]), JSON.stringify(line));
  assert.match(String(line["reason"]), new RegExp(`127\\.0\\.0\\.1, port ${server.port}\\b`));
  await server.start();
  await program.line("ready");
  const refused = program.lines.filter(({ reason }) => /ECONNREFUSED/.test(String(reason)));
  assert.equal(refused.length, 1);
  assert.deepEqual(repetitions(program.lines), []);
  await runOne("SELECT 1");
});

it("stops while it waits for a server", async () => {
  const port = await freePort();
  const waiting = new PgTask();
  waiting.launch(undefined, { env: { DATABASE_URL: `postgresql://postgres@127.0.0.1:${port}/postgres` } });
  await waiting.line("control connection failed, retrying");
  await waiting.stop();
});

for (const how of ["fast", "immediate", "killed"] as const) {
  it(`recovers from a server restart (${how}) and runs the interrupted task again`, async (context) => {
    const before = await connectTo(server.url);
    await before.query("SELECT pg_advisory_lock(1)");
    const id = await insertTask(before, "SELECT pg_advisory_lock_shared(1)");
    const { owner } = await waitForRun(before, id);
    const heard = program.lines.length;

    if (how === "fast") await server.stop();
    else await server.crash(how === "killed" ? "SIGKILL" : "SIGQUIT");
    await server.start();
    const since = performance.now();

    const client = await connectTo(server.url);
    const { owner: later, crash } = await waitForState(client, id, "DONE");
    context.diagnostic(`server restarted, ${how}: ${Math.round(performance.now() - since)} ms`);
    assert.notEqual(later, owner);
    assert.equal(crash, 0, "it is not the task's fault");
    await runOne("SELECT 2");
    await program.logged(({ msg }) => msg === "leadership regained", heard);
    await client.end();
    assert.deepEqual(repetitions(program.lines.slice(heard)), []);
    assert.equal(program.linesMatching("ready").length, 1);
  });
}

it("runs a task again when a server crash loses its commit", async () => {
  const user = await connectTo(server.url);
  await user.query("CREATE TABLE effect (what text)");
  await user.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(user, "SELECT FROM pg_advisory_xact_lock_shared(1); INSERT INTO effect VALUES ('made')");
  const { pid } = await waitForRun(user, id);
  const { rows: writers } = await user.query<{ pid: number; take: string }>(
    "SELECT a.pid, t.take::text FROM pg_stat_activity AS a, task AS t WHERE backend_type = 'walwriter'",
  );
  // The commit of CREATE TABLE flushes all WAL so far. Nothing is flushed after that, because the WAL writer is frozen.
  server.freeze(writers.map((writer) => writer.pid));
  await user.query("CREATE TABLE flushed ()");
  const holder = await connectTo(server.url);
  await holder.query("BEGIN; SELECT FROM task FOR UPDATE");
  await user.query("SELECT pg_advisory_unlock_all()");
  await waitForRow(user, "SELECT FROM effect", []);
  await waitForRow(user, "SELECT FROM pg_stat_activity WHERE pid = $1 AND state = 'idle' AND query = 'COMMIT'", [pid]);

  await server.crash();
  await server.start();
  const again = await connectTo(server.url);
  await waitForState(again, id, "DONE");
  const { rows } = await again.query(
    "SELECT take::text <> $2 AS again, output, crash, (SELECT count(*)::integer FROM effect) AS effects FROM task WHERE id = $1",
    [id, writers[0]?.take],
  );
  assert.deepEqual(rows, [{ again: true, output: "\nINSERT 0 1", crash: 0, effects: 1 }]);
  await again.end();
});

/** Returns what `why` says about a task. */
async function explain(id: string): Promise<{ readonly code: string; readonly text: string; readonly remedy: string }> {
  const { stdout } = await cli(["why", id, "--json"], { env });
  const { reasons } = JSON.parse(stdout);
  assert.equal(reasons.length, 1, stdout);
  return reasons[0];
}

it("keeps a rejected result when the server crashes, and neither why nor doctor takes its task for an orphan", async () => {
  const user = await connectTo(server.url);
  await user.query(`
    TRUNCATE effect;
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON task FOR EACH ROW WHEN (NEW.state IN ('DONE', 'FAIL')) EXECUTE FUNCTION refuse()`);
  const done = await insertTask(user, "INSERT INTO effect VALUES ('made')", { group: "done" });
  const failed = await insertTask(user, "SELECT 1/0", { group: "failed" });
  await program.line("result rejected by the server, retrying", 2);
  const served = program.linesMatching("serving table").length;
  await server.crash();
  await server.start();
  await program.line("serving table", served + 1);

  for (const id of [done, failed]) {
    // The manager tries to write its results before it can show that they are rejected.
    let reason = await explain(id);
    while (reason.code !== "rejected") reason = await explain(id);
    assert.match(reason.text, /its run has ended, and the server rejects its result: .*, perhaps refuse$/);
    assert.match(reason.remedy, new RegExp(`"result rejected by the server, retrying" with the id ${id} says why`));
  }
  const { lines } = await doctor(env);
  const [results] = lines.filter(({ name }) => name === "results");
  const [orphans] = lines.filter(({ name }) => name === "orphans");
  assert.deepEqual(
    [results?.level, results?.text],
    ["warn", `the runs of these tasks have ended, and the server rejects their results: ${done}, ${failed}`],
  );
  assert.deepEqual([orphans?.level, orphans?.text], ["ok", "none"]);

  const again = await connectTo(server.url);
  await again.query("DROP TRIGGER refuse ON task");
  await waitForState(again, done, "DONE");
  await waitForState(again, failed, "FAIL");
  const { rows } = await again.query("SELECT count(*)::integer AS effects FROM effect");
  assert.deepEqual(rows, [{ effects: 1 }]);
  assert.equal((await doctor(env)).lines.find(({ name }) => name === "results")?.level, "ok");
  await again.end();
  await program.stop();
});

it("stops soon after the grace period although tasks run and no backend answers", async (context) => {
  const graceMs = 500;
  const stopping = await startProcess({ config: { url: server.url, "pg_conf.grace": graceMs }, until: "ready" });
  const client = await connectTo(server.url);
  for (const group of ["one", "two"]) {
    const id = await insertTask(client, "SELECT pg_sleep(600)", { group });
    await waitForRun(client, id);
  }
  const { rows } = await client.query<{ pid: number }>(
    "SELECT pid FROM pg_stat_activity WHERE application_name ~ '^pg_(conf|work|task)'",
  );
  assert.equal(rows.length, 4);
  server.freeze(rows.map(({ pid }) => pid));
  const before = performance.now();
  await stopping.stop();
  const overrunMs = Math.round(performance.now() - before - graceMs);
  context.diagnostic(`ended ${overrunMs} ms after the grace period`);
  server.thaw();
  await client.end();
});

it("stops while it connects to a server that accepts the connection and sends nothing", async () => {
  const silent = createServer();
  const port = await listen(silent);
  const stopping = await startProcess({
    env: { DATABASE_URL: `postgresql://postgres@127.0.0.1:${port}/postgres?connect_timeout=0` },
  });
  await once(silent, "connection");
  await stopping.stop();
});
