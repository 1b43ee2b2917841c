import assert from "node:assert/strict";
import { once } from "node:events";
import { it } from "node:test";
import { startPgTask } from "../../../support/pgTask.js";
import { startWeb } from "../../../support/startWeb.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../../support/tasks.js";
import { token, Web } from "../../../support/web.js";
import { addedTaskSchema, changeEffectsSchema, changesSchema } from "../../../../src/web/api/changeSchemas.js";
import { columnsInfoSchema } from "../../../../src/web/api/schemas.js";
import { problemSchema } from "../../../../src/web/api/model.js";
import { taskDetailSchema, taskListSchema } from "../../../../src/web/api/taskSchemas.js";

const { database, client, config, pgTask, web, table } = await startWeb();
const path = `/api/tables/${table}`;

/** Makes a change, and returns the outcome and the text of each task. */
async function change(name: string, ids: readonly string[], more = {}): Promise<[string, string, string][]> {
  const { status, value } = await web.post(`${path}/changes`, { change: name, ids, ...more });
  assert.equal(status, 200, JSON.stringify(value));
  const { changed, tasks } = changesSchema.parse(value);
  assert.equal(changed, tasks.filter(({ outcome }) => outcome === "changed").length);
  return tasks.map(({ id, outcome, text }) => [id, outcome, text]);
}

async function add(task: object): Promise<string> {
  const { status, value } = await web.post(`${path}/tasks`, task);
  assert.equal(status, 201, JSON.stringify(value));
  return addedTaskSchema.parse(value).id;
}

/** Makes a request that is refused, and returns its status, code and detail. */
async function refused(target: string, body: unknown, from = web): Promise<[number, string, string]> {
  const { status, value } = await from.post(target, body);
  const { code, detail } = problemSchema.parse(value);
  return [status, code, detail];
}

async function columnsOf(id: string, names: string): Promise<Record<string, unknown> | undefined> {
  const { rows } = await client.query<Record<string, unknown>>(`SELECT ${names} FROM task WHERE id = $1`, [id]);
  return rows[0];
}

it("logs who has changed what, and how many", async () => {
  const from = pgTask.lines.length;
  const headers = { "X-Forwarded-For": "198.51.100.7" };
  const added = await web.request(`${path}/tasks`, {
    method: "POST",
    json: { input: "SELECT 1", plan: "infinity" },
    headers,
  });
  const { id } = addedTaskSchema.parse(JSON.parse(added.text));
  const second = await add({ input: "SELECT 1", plan: "infinity" });
  await change("stop", [id, second, "404404"]);
  await change("stop", [id, second]);
  await web.request(`${path}/tasks/${id}/delete`, { method: "POST" });
  await web.request(`${path}/tasks/${id}/delete`, { method: "POST" });
  for (const verb of ["pause", "pause", "resume"]) await web.post(`${path}/${verb}`, { group: "audited" });
  const address = { from: "127.0.0.1" };
  const expected = [
    { action: "add", changed: 1, ids: [id], ...address, forwardedFor: "198.51.100.7" },
    { action: "add", changed: 1, ids: [second], ...address },
    { action: "stop", changed: 2, ids: [id, second], ...address },
    { action: "delete", changed: 1, ids: [id], ...address },
    { action: "pause", group: "audited", ...address },
    { action: "resume", group: "audited", ...address },
  ];
  await pgTask.logged(({ action }) => action === "resume", from);
  const logged = pgTask.lines.slice(from).filter(({ msg }) => msg === "changed over HTTP");
  const [entry] = logged.map((line) => line["entry"]);
  assert.match(String(entry), /public/);
  assert.deepEqual(
    logged.map(
      ({ level: _level, name: _name, pid: _pid, msg: _msg, time: _time, hostname: _host, ...fields }) => fields,
    ),
    expected.map((fields) => ({ entry, ...fields })),
  );
});

it("says what becomes of a schedule", async () => {
  const daily = await add({ input: "SELECT 1", repeat: "1 day", plan: "infinity" });
  assert.deepEqual(await change("stop", [daily]), [
    [daily, "changed", "stopped before it ran; its schedule has ended"],
  ]);
  assert.deepEqual(await change("delete", [daily]), [[daily, "changed", "was STOP, deleted"]]);
});

it("changes many tasks in one request, and says what came of each", async (t) => {
  const done = await insertTask(client, "SELECT 1");
  await waitForState(client, done, "DONE");
  const running = await insertTask(client, "SELECT pg_sleep(3600)", { group: "long" });
  await waitForRun(client, running);
  const later = await add({ input: "SELECT 2", plan: "infinity" });
  const held = await add({ input: "SELECT 3", after: [later] });
  // Until the manager has looked up what the task waits for, it can hold a lock on the row.
  await waitForRow(client, `SELECT FROM task WHERE id = ${held} AND wait = 0`);
  const locked = await add({ input: "SELECT 4", plan: "infinity" });
  const other = await database.connect();
  await other.query("BEGIN");
  t.after(() => other.query("ROLLBACK"));
  await other.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [locked]);

  assert.deepEqual(await change("run-now", [held, done, running, locked, "404404"]), [
    [held, "refused", "it waits for other tasks: set its after to null, or end these"],
    [done, "refused", "is DONE: retry runs it again"],
    [running, "refused", "running (WORK)"],
    [locked, "locked", "row locked by another transaction: try again"],
    ["404404", "missing", "no such task"],
  ]);
  assert.deepEqual(await change("delete", [running, done, locked, later, later]), [
    [running, "refused", "running (WORK): stop it first"],
    [done, "changed", "was DONE, deleted"],
    [locked, "locked", "row locked by another transaction: try again"],
    [later, "changed", "was PLAN, deleted"],
  ]);
  await other.query("ROLLBACK");
  assert.deepEqual(await change("stop", [running, locked]), [
    [running, "changed", "cancelling; ends as DONE if already committed"],
    [locked, "changed", "stopped before it ran"],
  ]);
  await waitForState(client, running, "STOP");
  assert.deepEqual(await change("retry", [locked]), [[locked, "changed", "was STOP, runs again now"]]);
  await waitForState(client, locked, "DONE");
  assert.deepEqual(
    (await client.query<{ id: string }>("SELECT id FROM task WHERE id = ANY ($1)", [[done, later]])).rows,
    [],
  );
});

it("retries only tasks in the given states", async () => {
  const done = await add({ input: "SELECT 1" });
  const failed = await add({ input: "SELECT 1/0" });
  await waitForState(client, done, "DONE");
  await waitForState(client, failed, "FAIL");
  assert.deepEqual(await change("retry", [done, failed], { states: ["FAIL", "STOP"] }), [
    [done, "refused", "is DONE, which is none of the given states"],
    [failed, "changed", "was FAIL, runs again now"],
  ]);
  assert.deepEqual(await refused(`${path}/changes`, { change: "delete", ids: [done], states: ["DONE"] }), [
    400,
    "INVALID",
    "states: only a retry can be limited to states",
  ]);
  for (const states of [[], ["WORK"], "FAIL"]) {
    const [code] = await refused(`${path}/changes`, { change: "retry", ids: [done], states });
    assert.equal(code, 400, JSON.stringify(states));
  }
});

it("changes the other tasks if the server refuses one", async () => {
  await client.query(`CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN IF OLD.data = 'keep' THEN RAISE 'this one stays'; END IF; RETURN OLD; END$$;
    CREATE TRIGGER guard BEFORE DELETE ON task FOR EACH ROW EXECUTE FUNCTION guard()`);
  const ids = [
    await add({ input: "SELECT 1", plan: "infinity" }),
    await add({ input: "SELECT 1", plan: "infinity", data: "keep" }),
    await add({ input: "SELECT 1", plan: "infinity" }),
  ];
  assert.deepEqual(
    (await change("delete", ids)).map(([, outcome, text]) => [outcome, text]),
    [
      ["changed", "was PLAN, deleted"],
      ["failed", "the server refused: this one stays"],
      ["changed", "was PLAN, deleted"],
    ],
  );
  await client.query("DROP FUNCTION guard CASCADE");
});

it("says what a change would bring about for other tasks, and makes none", async () => {
  const effects = async (name: string, ...ids: string[]) => {
    const { status, value } = await web.post(`${path}/changes/check`, { change: name, ids });
    assert.equal(status, 200, JSON.stringify(value));
    const { gone, causes, pauses, paused } = changeEffectsSchema.parse(value);
    return { gone: gone.value, causes, pauses, paused: paused.value };
  };
  const nothing = { gone: 0, causes: [], pauses: [], paused: 0 };
  const first = await add({ input: "SELECT 1", plan: "infinity" });
  const second = await add({ input: "SELECT 2", after: [first] });
  const third = await add({ input: "SELECT 3", after: [first, second] });
  await add({ input: "SELECT 4", after: [third], upon: "end" });
  const needless = await add({ input: "SELECT 5", after: [first], upon: "fail" });
  assert.deepEqual(await effects("stop", first), { ...nothing, gone: 2 });
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND wait = 0", [needless]);
  assert.deepEqual(await effects("delete", first), { ...nothing, gone: 2 });
  assert.deepEqual(await effects("stop", first, second), { ...nothing, gone: 1 });
  assert.deepEqual(await effects("run-now", first), nothing);

  await change("stop", [first]);
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'GONE'", [third]);
  assert.deepEqual(await effects("retry", second), { ...nothing, gone: 1, causes: [{ id: first, state: "STOP" }] });
  const { gone } = await effects("retry", second, third);
  assert.equal(gone, 2);
  assert.deepEqual(await effects("retry", first, second, third), nothing);
  await web.post(`${path}/pause`, { group: null });
  assert.deepEqual(await effects("retry", first), { ...nothing, pauses: [{ group: null, tasks: 1 }], paused: 1 });
  await web.post(`${path}/resume`, { group: null });

  assert.equal((await web.post(`${path}/tasks/${second}/retry-without-waiting`, undefined)).status, 200);
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'DONE'", [second]);
  assert.deepEqual(await columnsOf(second, "after, upon"), { after: null, upon: null });
  const [status, code, detail] = await refused(`${path}/tasks/${second}/run-without-waiting`, undefined);
  assert.deepEqual([status, code, detail], [409, "CONFLICT", `task ${second}: is DONE: retry runs it again`]);
  const plain = await add({ input: "SELECT 6", plan: "infinity" });
  assert.deepEqual(
    (await refused(`${path}/tasks/${plain}/run-without-waiting`, undefined))[2],
    `task ${plain}: it does not wait for others`,
  );
});

it("ends only what keeps the task waiting", async () => {
  const reasonsOf = async (id: string) => (await web.get(taskDetailSchema, `${path}/tasks/${id}`)).reasons;
  const holder = await database.connect();
  const bystander = await database.connect();
  await holder.query("BEGIN; CREATE TABLE held (); LOCK TABLE held");
  const backend =
    "SELECT pid, to_json(backend_start) #>> '{}' AS started FROM pg_stat_activity WHERE pid = pg_backend_pid()";
  const other = (await bystander.query<{ pid: number; started: string }>(backend)).rows[0];
  await holder.query("COMMIT; BEGIN; LOCK TABLE held");
  const id = await add({ input: "SELECT count(*) FROM held", group: "blocked" });
  await waitForRun(client, id);
  await waitForRow(client, "SELECT FROM pg_locks WHERE relation = 'held'::regclass AND NOT granted");
  const [reason] = await reasonsOf(id);
  const [blocker, ...more] = reason?.blockers ?? [];
  assert.deepEqual([reason?.code, more], ["waits-for-lock", []]);
  assert.ok(blocker?.endable === true && blocker.state === "idle in transaction");
  const target = `${path}/tasks/${id}/end-blocker`;
  const { pid, started } = blocker;
  for (const body of [
    { ...other, how: "terminate" },
    { pid, started: other?.started, how: "terminate" },
  ]) {
    const [status, code] = await refused(target, body);
    assert.deepEqual([status, code], [409, "CONFLICT"]);
  }
  const lost = once(holder, "error");
  assert.equal((await web.post(target, { pid, started, how: "terminate" })).status, 200);
  await lost;
  await waitForState(client, id, "DONE");
  assert.deepEqual(await refused(target, { pid, started, how: "terminate" }), [
    409,
    "CONFLICT",
    `server process ${pid} does not keep task ${id} waiting`,
  ]);
  await bystander.query("SELECT 1");
});

it("deletes one task", async () => {
  const id = await add({ input: "SELECT 1", plan: "infinity" });
  const { status, value } = await web.post(`${path}/tasks/${id}/delete`, {});
  assert.deepEqual([status, value], [200, { id, state: null }]);
  assert.equal(await columnsOf(id, "id"), undefined);
});

const asked = async (verb: string, body: object): Promise<unknown> => (await web.post(`${path}/${verb}`, body)).value;

it("pauses and resumes a group and the whole table", async () => {
  const mail = { group: "mail", paused: true };
  assert.deepEqual(await asked("pause", { group: "mail", reason: "moving" }), { ...mail, changed: true });
  const id = await add({ input: "SELECT 1", group: "mail" });
  assert.deepEqual(await asked("pause", { group: "mail" }), { ...mail, changed: false });
  assert.deepEqual(await asked("pause", {}), { group: null, changed: true, paused: true });
  assert.deepEqual((await client.query(`SELECT "group", reason FROM task_pause ORDER BY 1 NULLS FIRST`)).rows, [
    { group: null, reason: null },
    { group: "mail", reason: "moving" },
  ]);
  assert.deepEqual(await asked("resume", { group: "mail" }), { ...mail, changed: true });
  assert.equal((await columnsOf(id, "state"))?.["state"], "PLAN");
  assert.deepEqual(await asked("resume", { group: null }), { group: null, changed: true, paused: false });
  await waitForState(client, id, "DONE");
});

it("adds a task with its options, and with values copied from another one", async () => {
  await client.query("ALTER TABLE task ADD COLUMN tenant text, ADD COLUMN weight integer");
  const options = {
    group: "g",
    max: -5,
    timeout: "00:05:00",
    args: [{ deep: [1, null] }],
    retry: 3,
    sqlstate: ["40", "55P03"],
    header: false,
    remote: "host=nowhere password=secret",
  };
  const own = { tenant: "acme", weight: 7 };
  const id = await add({ ...options, input: "SELECT $1", plan: "infinity", timeout: "5 min", key: "k", columns: own });
  const names = `"group", max, timeout::text, args, retry, sqlstate, header, remote, tenant, weight`;
  const expected = { ...options, ...own };
  assert.deepEqual(await columnsOf(id, names), expected);
  const columns = ["input", "args", "max", "timeout", "retry", "sqlstate", "header", "remote", "tenant"];
  const copy = await add({ plan: "infinity", group: "h", columns: { weight: 8 }, copy: { id, columns } });
  assert.deepEqual(await columnsOf(copy, names), { ...expected, group: "h", weight: 8 });
  assert.deepEqual(await refused(`${path}/tasks`, { input: "SELECT 1", key: "k" }), [
    409,
    "CONFLICT",
    "key: another task with this key waits",
  ]);
  const delayed = await add({ input: "SELECT 1", delay: "1 day" });
  const planned = await columnsOf(delayed, "plan > now() + interval '23 hours' AS later");
  assert.deepEqual(planned, { later: true });
});

it("says what is wrong with a task to add", async () => {
  const id = await add({ input: "SELECT 1", plan: "infinity" });
  for (const [task, code, message] of [
    [{}, "INVALID", /^expected the task's SQL in input, got nothing$/],
    [{ input: "  " }, "INVALID", /^expected the task's SQL in input, got " {2}"$/],
    [{ input: "SELECT 1", timeout: "soon" }, "INVALID", /^timeout: invalid input syntax for type interval: "soon"$/],
    [{ input: "SELECT 1", timeout: "-1 s" }, "INVALID", /^timeout: must not be below 0$/],
    [{ input: "SELECT 1", rule: "61 * * * *" }, "INVALID", /61/],
    [{ input: "SELECT 1", columns: { nosuch: 1 } }, "INVALID", /column "nosuch" of relation "task" does not exist/],
    [{ input: "SELECT 1", delimiter: "ab" }, "INVALID", /^expected delimiter with one ASCII character, got "ab"$/],
    [{ input: "SELECT 1", plan: "now", delay: "1 s" }, "INVALID", /^expected one of plan and delay, got both$/],
    [{ input: "SELECT 1", nosuch: 1 }, "INVALID", /^nosuch: unknown property$/],
    [{ input: "a\0b" }, "INVALID", /^input: expected text without zero bytes$/],
    [
      { input: "SELECT 1", copy: { id, columns: ["input"] } },
      "INVALID",
      /^input: expected one value, got it in copy, too$/,
    ],
    [
      { copy: { id: "404404", columns: ["input"] } },
      "NOT_FOUND",
      /^there is no task 404404 to copy from in this table$/,
    ],
  ] as const) {
    const [, given, detail] = await refused(`${path}/tasks`, task);
    assert.deepEqual([given, message.test(detail)], [code, true], detail);
  }
  await client.query(`CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE 'not on Sundays'; END$$;
    CREATE TRIGGER guard BEFORE INSERT ON task FOR EACH ROW EXECUTE FUNCTION guard()`);
  assert.deepEqual(await refused(`${path}/tasks`, { input: "SELECT 1" }), [400, "INVALID", "not on Sundays"]);
  await client.query("DROP FUNCTION guard CASCADE");
});

it("says all that is wrong with a task to add, with the places, and adds nothing", async () => {
  await add({ input: "SELECT 1", key: "taken", plan: "infinity" });
  const countRows = async (): Promise<unknown> => (await client.query("SELECT count(*) FROM task")).rows[0];
  const count = await countRows();
  await client.query("ALTER TABLE task ADD COLUMN size integer, ADD CONSTRAINT small CHECK (size < 5)");
  const wrong = {
    key: "taken",
    delay: "soon",
    timeout: "often",
    keep: "-1 s",
    gap: "-2 s",
    active: "1 day -1 hour",
    delimiter: "ab",
    rule: "61 * * * *",
    columns: { size: 7 },
  };
  const places = ["input", "key", "delay", "timeout", "keep", "gap", "delimiter", "rule", "columns/size"];
  const expected = places.map((place) => `#/${place}`);
  const { status, value } = await web.post(`${path}/tasks`, wrong);
  assert.equal(status, 400);
  const { errors = [], detail, code } = problemSchema.parse(value);
  assert.deepEqual(new Set(errors.map(({ pointer }) => pointer)), new Set(expected));
  assert.equal(code, "INVALID");
  assert.equal(detail.split("\n").length, expected.length);
  assert.equal(errors.find(({ pointer }) => pointer === "#/keep")?.detail, "must not be below 0");
  const checked = await web.post(`${path}/tasks/check`, wrong);
  assert.deepEqual(checked, { status: 200, value: { errors } });
  const right = await web.post(`${path}/tasks/check`, { input: "SELECT 1", columns: { size: 3 } });
  assert.deepEqual(right, { status: 200, value: { errors: [] } });
  assert.deepEqual(await countRows(), count);
  await client.query("ALTER TABLE task DROP COLUMN size");
});

it("refuses bodies that are not JSON", async () => {
  for (const [headers, body, message] of [
    [{ "Content-Type": "text/plain" }, "{}", 'expected a body of type application/json, got "text/plain'],
    [{ "Content-Type": "application/json" }, "{", "the body is not valid JSON"],
  ] as const) {
    const { status, text } = await web.requestWithoutToken(`${path}/changes`, {
      method: "POST",
      headers: { Authorization: `Bearer ${token}`, ...headers },
      body,
    });
    assert.equal(status, 400);
    assert.ok(problemSchema.parse(JSON.parse(text)).detail.startsWith(message), text);
  }
});

it("lists the columns that a new task can set, with their defaults, and evaluates no default of the user", async () => {
  await client.query("CREATE SEQUENCE counted; ALTER TABLE task ADD COLUMN number bigint DEFAULT nextval('counted')");
  const counted = async (): Promise<unknown> => (await client.query("SELECT last_value FROM counted")).rows[0];
  const before = await counted();
  const { columns } = await web.get(columnsInfoSchema, `${path}/columns`);
  const named = new Map(columns.map((column) => [column.name, column]));
  assert.deepEqual(named.get("group"), { name: "group", type: "text", nullable: false, default: "group", own: false });
  assert.deepEqual(named.get("timeout"), {
    name: "timeout",
    type: "interval",
    nullable: false,
    default: "00:00:00",
    own: false,
  });
  assert.deepEqual(named.get("number"), { name: "number", type: "bigint", nullable: true, default: null, own: true });
  assert.deepEqual(await counted(), before);
  for (const internal of ["id", "state", "owner", "hash", "wait"]) assert.equal(named.has(internal), false, internal);
});

/** Returns the ids of a page of the list, and where the next one begins. */
const list = async (query: string): Promise<[string[], string | null]> => {
  const { tasks, next } = await web.get(taskListSchema, `${path}/tasks?${query}`);
  return [tasks.map(({ id }) => id), next];
};

it("lists the oldest tasks first if asked", async () => {
  await client.query("TRUNCATE task RESTART IDENTITY");
  const ids = [];
  for (const group of ["a", "b", "a", "a"]) ids.push(await add({ input: "SELECT 1", plan: "infinity", group }));
  const [first = "", second = "", third = "", fourth = ""] = ids;
  assert.deepEqual(await list("order=oldest&limit=2"), [[first, second], second]);
  assert.deepEqual(await list(`order=oldest&limit=2&after=${second}`), [[third, fourth], null]);
  assert.deepEqual(await list("order=oldest&limit=2&group=a"), [[first, third], third]);
  assert.deepEqual(await list(`order=oldest&limit=2&group=a&after=${third}`), [[fourth], null]);
  assert.deepEqual(await list(`after=${first}&before=${fourth}`), [[third, second], null]);
});

it("tells a role without privileges what it lacks", async () => {
  const id = await add({ input: "SELECT 1", plan: "infinity" });
  const role = `reader_${database.target.database}`;
  await client.query(`CREATE ROLE ${role} LOGIN; GRANT SELECT ON task, task_pause TO ${role}`);
  const { host, port, database: name } = database.target;
  const url = `postgresql://${role}@${host}:${port}/${name}`;
  const reader = await startPgTask({ ...config, "pg_task.json": [{ url }] });
  const page = await Web.connect(reader);
  const from = `/api/tables/${await page.tableId()}`;
  for (const [target, body, message] of [
    ["changes", { change: "delete", ids: [id] }, `delete tasks: GRANT UPDATE, DELETE ON "public"."task" TO ${role}`],
    [`tasks/${id}/stop`, {}, `stop tasks: GRANT UPDATE ON "public"."task" TO ${role}`],
    ["pause", {}, `pause or resume: GRANT SELECT, INSERT, DELETE ON "public"."task_pause" TO ${role}`],
    [
      "tasks",
      { input: "SELECT 1", group: "g" },
      `add this task: GRANT INSERT ("group", input) ON "public"."task" TO ${role}; GRANT USAGE ON SEQUENCE public.task_id_seq TO ${role}`,
    ],
  ] as const) {
    const answer = await refused(`${from}/${target}`, body, page);
    assert.deepEqual(answer, [403, "FORBIDDEN", `the entry's user may not ${message}`]);
  }
  assert.equal((await columnsOf(id, "state"))?.["state"], "PLAN");
  await reader.stop();
  await client.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
});
