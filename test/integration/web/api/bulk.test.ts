import assert from "node:assert/strict";
import { beforeEach, it } from "node:test";
import { startWeb } from "../../../support/startWeb.js";
import { poll } from "../../../support/web.js";
import type { BulkState } from "../../../../src/web/api/bulkRoutes.js";

const { client, web, table, pgTask } = await startWeb();
const path = `/api/tables/${table}/bulk`;

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

async function fail(count: number, error: string): Promise<void> {
  await client.query(
    `INSERT INTO task (input, state, plan, start, stop, error)
     SELECT 'SELECT 1', 'FAIL', '2026-01-01', '2026-01-01', '2026-01-01', $1 FROM generate_series(1, $2::integer)`,
    [error, count],
  );
}

async function send(target: string, body: unknown, expected: number): Promise<BulkState & { readonly detail: string }> {
  const { status, text } = await web.request(target, { method: "POST", json: body });
  assert.equal(status, expected, text);
  return JSON.parse(text);
}

const until = async (id: string, ...phases: string[]): Promise<BulkState> =>
  await poll(
    async (): Promise<BulkState> => JSON.parse((await web.request(`${path}/${id}`)).text),
    ({ phase }) => phases.includes(phase),
  );

it("retries exactly the tasks that it has counted, each of them once", async () => {
  await fail(6_800, "ERROR:  one");
  await fail(10, "ERROR:  two");
  const { id } = await send(path, { change: "retry", filter: { state: "FAIL", text: "one" } }, 201);
  const counted = await until(id, "counted");
  assert.deepEqual([counted.matched, counted.done], [6_800, 0]);
  // It matches, too, but was not counted.
  await fail(1, "ERROR:  one more");
  await client.query("UPDATE task SET input = 'SELECT 1/0' WHERE id = 1");
  await send(`${path}/${id}/start`, undefined, 200);
  const done = await until(id, "done", "failed");
  assert.deepEqual([done.phase, done.done, done.changed, done.others, done.error], ["done", 6_800, 6_800, [], null]);
  const { rows } = await client.query(
    "SELECT count(*)::integer AS count FROM task WHERE state = 'FAIL' AND stop < '2026-01-02'",
  );
  assert.deepEqual(rows, [{ count: 11 }]);
  const { action, changed, filter } = await pgTask.line("changed over HTTP");
  assert.deepEqual([action, changed, filter], ["retry", 6_800, { state: "FAIL", text: "one" }]);
});

it("can be stopped, and leaves the rest as it is", async () => {
  await fail(3_000, "ERROR:  no");
  await client.query(
    `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.002); RETURN OLD; END';
     CREATE TRIGGER slow BEFORE DELETE ON task FOR EACH ROW EXECUTE FUNCTION slow()`,
  );
  const { id } = await send(path, { change: "delete", filter: { state: "FAIL" }, start: true }, 201);
  await until(id, "running");
  await send(`${path}/${id}/stop`, undefined, 200);
  const stopped = await until(id, "stopped");
  await client.query("DROP TRIGGER slow ON task");
  const { rows } = await client.query<{ count: number }>("SELECT count(*)::integer AS count FROM task");
  assert.equal(rows[0]?.count, 3_000 - stopped.changed);
  assert.ok(stopped.changed < 3_000, String(stopped.changed));
  assert.equal((await send(`${path}/${id}/start`, undefined, 409)).detail, "expected counted tasks, it is stopped");
});

it("refuses what would change nothing, or more than was meant", async () => {
  for (const [body, detail] of [
    [{ change: "retry", filter: {} }, /^filter\.state: expected states to retry, such as FAIL/],
    [{ change: "stop", filter: { state: "FAIL" } }, /^filter\.state: expected one of PLAN, TAKE, WORK for stop$/],
    [{ change: "stop", filter: { colour: "red" } }, /^filter\.colour: unknown property$/],
  ] as const) {
    assert.match((await send(path, body, 400)).detail, detail);
  }
  assert.match((await send(`${path}/nosuch/stop`, undefined, 404)).detail, /^there is no such change/);
});
