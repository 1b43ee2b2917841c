import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { runInNewContext } from "node:vm";
import { Client, Pool } from "pg";
import { PgTaskError, TaskClient, type ArgValue, type SqlClient, type SqlPool } from "../../../src/library/index.js";
import { longestTimerMs } from "../../../src/shared/backoff.js";
import { endPool } from "../../support/endPool.js";
import { createDatabase } from "../../support/database.js";
import { untyped } from "../../support/untyped.js";

const closing: (() => Promise<unknown>)[] = [];
after(() => Promise.all(closing.map((close) => close())));
const database = await createDatabase();
const { url } = database;

function openPool(max = 4): Pool {
  const pool = new Pool({ connectionString: url, max });
  closing.push(() => endPool(pool));
  return pool;
}
const pool = openPool();
const tasks = new TaskClient(pool);

async function openClient(): Promise<Client> {
  const client = new Client({ connectionString: url });
  await client.connect();
  closing.push(() => client.end());
  return client;
}

async function inputs(): Promise<string[]> {
  const { rows } = await pool.query<{ input: string }>("SELECT input FROM task ORDER BY id");
  return rows.map(({ input }) => input);
}

const fails = async (work: Promise<unknown>, code: string, message: RegExp): Promise<void> => {
  await assert.rejects(work, (error: unknown) => {
    assert.ok(error instanceof PgTaskError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  });
};

const idsOf = async (list: AsyncIterable<{ readonly id: string }>): Promise<string[]> => {
  const ids: string[] = [];
  for await (const { id } of list) ids.push(id);
  return ids;
};

const refuses = async (work: Promise<unknown>, message: RegExp): Promise<void> => await fails(work, "USAGE", message);
const rejects = async (work: Promise<unknown>, message: RegExp): Promise<void> =>
  await fails(work, "TASK_REJECTED", message);

for (const [kind, open] of [
  ["a Pool", async (): Promise<SqlPool> => openPool()],
  ["a Client", async (): Promise<SqlClient> => await openClient()],
  ["a URL", async (): Promise<string> => url],
] as const) {
  it(`adds, reads and changes tasks over ${kind}`, async () => {
    await using client = new TaskClient(await open());
    const id = await client.add("SELECT 1");
    assert.equal((await client.get(id))?.input, "SELECT 1");
    assert.deepEqual(await client.stop(id), { id, outcome: "changed", state: "PLAN", text: "stopped before it ran" });
    assert.equal((await client.get(id))?.state, "STOP");
    assert.equal((await client.retry(id)).outcome, "changed");
    assert.equal((await client.get(id))?.state, "PLAN");
    assert.equal((await client.delete(id)).outcome, "changed");
    assert.equal(await client.get(id), null);
  });
}

function* numbers(): Generator<number> {
  yield 1;
}

describe("add", () => {
  it("gives each column the value that the task has for it", async () => {
    const first = await tasks.add("SELECT 1");
    const given = {
      input: "SELECT $1, $2",
      args: [7, "x"],
      group: "g",
      max: -5,
      repeat: "1 day",
      drift: true,
      key: "k",
      retry: 3,
      suspend: 4,
      tell: "ends",
      sqlstate: ["40", "55P03"],
      keep: "5 days",
      delete: false,
      count: 2,
      save: true,
      atomic: false,
      header: false,
      string: false,
      delimiter: ",",
      escape: "\\",
      quote: '"',
      null: "nil",
      data: "d",
      parent: first,
    };
    const intervals = {
      active: "2 hours",
      timeout: "3 seconds",
      backoff: "4 seconds",
      gap: "1 second",
      live: "6 seconds",
    };
    const id = await tasks.add({
      ...given,
      ...intervals,
      plan: new Date("2100-01-02T03:04:05.678Z"),
      remote: "host=x password=secret",
    });
    const task = await tasks.get(id);
    assert.ok(task !== null);
    const { plan, created, remote, ...rest } = task;
    assert.equal(new Date(plan).toISOString(), "2100-01-02T03:04:05.678Z");
    assert.ok(created !== null && Number.isFinite(Date.parse(created)));
    assert.doesNotMatch(remote ?? "", /secret/);
    const none =
      "take start stop output error errors after upon rule zone jitter within alone catchup overlap attempt pid role failures".split(
        " ",
      );
    assert.deepEqual(rest, {
      ...given,
      ...Object.fromEntries(none.map((name) => [name, null])),
      id,
      state: "PLAN",
      claimed: false,
      active: "02:00:00",
      timeout: "00:00:03",
      backoff: "00:00:04",
      gap: "00:00:01",
      live: "00:00:06",
      crash: 0,
      columns: {},
    });
  });

  it("plans a schedule, and a task after a delay", async () => {
    const schedule = await tasks.get(
      await tasks.add({ input: "SELECT", rule: "30 3 * * *", zone: "Europe/Berlin", catchup: true, overlap: false }),
    );
    assert.deepEqual(
      [schedule?.rule, schedule?.zone, schedule?.catchup, schedule?.overlap],
      ["30 3 * * *", "Europe/Berlin", true, false],
    );
    assert.match(schedule?.plan ?? "", /:30:00/);
    const delayed = await tasks.get(await tasks.add({ input: "SELECT", delay: "1 day" }));
    const ms = Date.parse(delayed?.plan ?? "") - Date.parse(delayed?.created ?? "");
    assert.equal(Math.round(ms / 3_600_000), 24);
  });

  it("lets a task wait for others", async () => {
    const first = await tasks.add({ input: "SELECT", plan: "2100-01-01" });
    const task = await tasks.get(await tasks.add({ input: "SELECT", after: [first, BigInt(first)], upon: "end" }));
    assert.deepEqual([task?.after, task?.upon, task?.plan], [[first, first], "end", "infinity"]);
  });

  it("sets columns of the user's own, and shows them apart", async () => {
    const own = await createDatabase();
    const client = await own.connect();
    await client.query(
      "ALTER TABLE task ADD tags text[], ADD meta jsonb, ADD bytes bytea, ADD big bigint, ADD day date",
    );
    const ours = new TaskClient(client);
    const columns = { tags: ["a", 'b"c'], meta: { x: [1] }, bytes: Buffer.from("hi"), big: 12n, day: new Date(0) };
    const id = await ours.add({ input: "SELECT", columns });
    const task = await ours.get(id);
    const expected = { tags: ["a", 'b"c'], meta: { x: [1] }, bytes: "\\x6869", big: 12, day: "1970-01-01" };
    assert.deepEqual(task?.columns, expected);
    await refuses(ours.add({ input: "SELECT", columns: { input: "x" } }), /column input once/);
    const state =
      /^expected only columns of your own in columns, got state, which is pg-task's: only pg-task gives it /;
    await refuses(ours.add({ input: "SELECT", columns: { state: "DONE" } }), state);
    for (const name of ["group", "key", "args", "gap"]) {
      const instead = new RegExp(`got ${name}, which is pg-task's: use the task's property ${name} instead$`);
      await refuses(ours.add({ input: "SELECT", columns: { [name]: "x" } }), instead);
    }
    for (const name of ["due", "wait"]) {
      const only = new RegExp(`got ${name}, which is pg-task's: only pg-task gives it`);
      await refuses(ours.add({ input: "SELECT", columns: { [name]: "x" } }), only);
    }
    const second = ["SELECT", { input: "SELECT", columns: { key: "x" } }];
    await refuses(ours.addMany(second), /^tasks\[1\]: expected only columns of your own in columns, got key, /);
    await rejects(ours.add({ input: "SELECT", columns: { nope: 1 } }), /"nope" of relation "task"/);
  });

  it("refuses columns that are no object with properties, or whose name is empty", async () => {
    const before = await inputs();
    const object = /^expected columns to be an object with a property for each column, got another object$/;
    const others = [
      new Map([["size", 1]]),
      new Set(["x"]),
      Promise.resolve({}),
      new Date(),
      new Error("x"),
      Buffer.from("x"),
    ];
    for (const columns of others) await refuses(tasks.add(untyped({ input: "SELECT", columns })), object);
    const name = /^tasks\[1\]: expected names of columns in columns, got an empty one$/;
    await refuses(tasks.addMany(["SELECT", { input: "SELECT", columns: { "": 5 } }]), name);
    assert.deepEqual(await inputs(), before);
    assert.match(await tasks.add(untyped({ input: "SELECT", columns: { "": undefined } })), /^\d+$/);
  });

  it("refuses intervals that are no text", async () => {
    const before = await inputs();
    for (const name of ["delay", "active", "timeout", "repeat", "backoff", "gap", "keep", "live"]) {
      await refuses(
        tasks.add(untyped({ input: "SELECT", [name]: 300 })),
        new RegExp(`^expected ${name} to be an interval as text, .*, got 300: write "300 ms" or "300 seconds"$`),
      );
    }
    await refuses(tasks.add(untyped({ input: "SELECT", keep: 0 })), /got 0: write "0"$/);
    await refuses(tasks.add(untyped({ input: "SELECT", keep: { days: 1 } })), /keep .*, got an object$/);
    assert.deepEqual(await inputs(), before);
    assert.match(await tasks.add({ input: "SELECT", delay: "1000 ms", keep: "0" }), /^\d+$/);
  });

  it("refuses args that JSON cannot represent, and says where they are", async () => {
    const before = await inputs();
    const circular: unknown[] = [];
    circular.push(circular);
    const refused: [unknown, RegExp][] = [
      [[1, () => 1], /^expected args\[1\] to be a value that JSON can represent, got a function$/],
      [[Symbol("x")], /args\[0\] .*, got a symbol$/],
      [[undefined], /args\[0\] .*, got undefined: use null$/],
      [[1n], /args\[0\] .*, got a bigint: give it as text$/],
      [[1, [2, { price: Number.NaN }]], /args\[1\]\[1\]\.price .*, got NaN: /],
      [[{ a: { b: 1 }, c: [-Infinity] }], /args\[0\]\.c\[0\] .*, got -Infinity: /],
      [{ "no name": { x: 1 }, list: [1, undefined] }, /args\.list\[1\] .*, got undefined/],
      [{ "no name": 1n }, /args\["no name"\] .*, got a bigint/],
      [[{}, Buffer.from("x")], /args\[1\] .*, got bytes: give them as text/],
      [{ f: new Float32Array(1) }, /args\.f .*, got bytes/],
      [[new ArrayBuffer(1)], /args\[0\] .*, got bytes/],
      [[new Map([[1, 2]])], /args\[0\] .*, got a Map or Set/],
      [[Promise.resolve(1)], /args\[0\] .*, got a promise: await it/],
      [[new Date(Number.NaN)], /args\[0\] .*, got an invalid date/],
      [circular, /^expected args to be a value that JSON can represent: .*circular/],
    ];
    for (const [args, message] of refused) {
      await refuses(tasks.add(untyped({ input: "SELECT $1", args })), message);
    }
    await refuses(
      tasks.add(untyped({ input: "SELECT", columns: { meta: { run: assert.ok } } })),
      /^expected meta\.run to be a value that JSON can represent, got a function$/,
    );
    assert.deepEqual(await inputs(), before);
    const shared = { at: new Date(0), none: null };
    const id = await tasks.add({ input: "SELECT $1, $2", args: [shared, [shared, "x", true, 1.5]] });
    const seen = { at: "1970-01-01T00:00:00.000Z", none: null };
    assert.deepEqual((await tasks.get(id))?.args, [seen, [seen, "x", true, 1.5]]);
  });

  it("refuses text that PostgreSQL cannot store, and says where it is", async () => {
    const before = await inputs();
    for (const [task, message] of [
      [{ input: "SELECT '\0'" }, /^expected input without the NUL character, which PostgreSQL cannot store$/],
      [{ input: "SELECT", args: ["a\0b"] }, /^expected args\[0\] without the NUL character, /],
      [
        { input: "SELECT", args: { lines: [{ note: "\ud800" }] } },
        /^expected args\.lines\[0\]\.note without a lone surrogate /,
      ],
      [{ input: "SELECT", args: { "\udc00": 1 } }, /^expected args\[.*\] without a lone surrogate /],
      [{ input: "SELECT '\udc00\ud800'" }, /^expected input without a lone surrogate \(half of a character\), which /],
      [{ input: "SELECT", key: "k\0" }, /^expected key without the NUL character, /],
      [{ input: "SELECT", delay: "1 s\0" }, /^expected delay without the NUL character, /],
      [{ input: "SELECT", sqlstate: ["40", "5\0"] }, /^expected sqlstate without the NUL character, /],
      [{ input: "SELECT", columns: { note: "\0" } }, /^expected note without the NUL character, /],
    ] as const) {
      await rejects(tasks.add(task), message);
    }
    for (const [name, message] of [
      ["a\0b", /^expected names of columns in columns without the NUL character, got "a\\u0000b"$/],
      ["a\ud800", /^expected names of columns in columns without a lone surrogate .*, got "a\\ud800"$/],
    ] as const) {
      await refuses(tasks.add({ input: "SELECT", columns: { [name]: 1 } }), message);
    }
    await rejects(tasks.addMany(["SELECT", "SELECT '\0'"]), /^tasks\[1\]: expected input without /);
    assert.deepEqual(await inputs(), before);
    const id = await tasks.add({ input: "SELECT '😀'", args: ["😀", "\\u0000", { "😀": "\u001f" }] });
    assert.deepEqual((await tasks.get(id))?.args, ["😀", "\\u0000", { "😀": "\u001f" }]);
  });

  it("refuses args that are larger than the server takes, before it sends them if they certainly are", async () => {
    // As JSON of the server's: the text, two brackets and two quotes.
    const largest = "a".repeat((1 << 20) - 4);
    const id = await tasks.add({ input: "SELECT", args: [largest] });
    assert.deepEqual((await tasks.get(id))?.args, [largest]);
    const sent: string[] = [];
    const query: SqlClient["query"] = async (text, values) => {
      sent.push(text);
      return await pool.query(text, values);
    };
    await rejects(
      tasks.add({ input: "SELECT", args: [`${largest}a`] }, { client: { query } }),
      /^args is larger than 1 MB$/,
    );
    assert.deepEqual(sent, []);
    // It has as many characters as the largest, but more bytes.
    await rejects(
      tasks.add({ input: "SELECT", args: ["é".repeat(largest.length)] }, { client: { query } }),
      /rejects the task: args is larger than 1 MB \(SQLSTATE 22023\)$/,
    );
    assert.notDeepEqual(sent, []);
  });

  it("says that a value which the server finds too large or too deep is refused for good", async () => {
    const client = await openClient();
    await client.query("SET max_stack_depth = '100kB'");
    const nested = (depth: number): ArgValue => (depth === 0 ? 0 : [nested(depth - 1)]);
    await assert.rejects(tasks.add({ input: "SELECT", args: [nested(1_500)] }, { client }), {
      code: "TASK_REJECTED",
      sqlState: "54001",
      retryable: false,
    });
  });

  it("refuses objects in args of which JSON would lose the contents", async () => {
    const before = await inputs();
    class Point {
      readonly #x = 1;
      get x(): number {
        return this.#x;
      }
    }
    const lost = /^expected args\[1\]\.at to be .*, got an object without properties that JSON keeps: give what /;
    const refused: [unknown, RegExp][] = [
      [/x/, /^expected args\[1\]\.at to be a value that JSON can represent, got a RegExp: give its source$/],
      [new Error("x"), /, got an Error: give its message$/],
      [Object.assign(new TypeError("x"), { code: "X" }), /, got an Error: give its message$/],
      [numbers(), lost],
      [[1].values(), lost],
      [new WeakMap(), lost],
      [new WeakSet(), lost],
      [new Intl.NumberFormat("en"), lost],
      [new URLSearchParams("a=1"), lost],
      [new Point(), lost],
      [{ toJSON: () => new Date(0) }, lost],
      [Object(Symbol("x")), /, got a symbol$/],
      [Object(Number.NaN), /, got NaN: /],
    ];
    for (const [value, message] of refused) {
      await refuses(tasks.add(untyped({ input: "SELECT $1", args: [1, { at: value }] })), message);
    }
    await refuses(tasks.add(untyped({ input: "SELECT $1", args: new Point() })), /^expected args to be /);
    assert.deepEqual(await inputs(), before);
    class Order {
      readonly lines = [1];
      readonly note = undefined;
    }
    const kept = [
      new Order(),
      {},
      [],
      Object.create(null),
      runInNewContext("({})"),
      Object(1),
      Object("x"),
      new URL("http://localhost/"),
      Object.assign(new Error("x"), { toJSON: () => "x" }),
    ];
    const id = await tasks.add(untyped({ input: "SELECT $1", args: kept }));
    const seen = [{ lines: [1] }, {}, [], {}, {}, 1, "x", "http://localhost/", "x"];
    assert.deepEqual((await tasks.get(id))?.args, seen);
  });

  it("leaves properties that are undefined out of objects in args", async () => {
    const id = await tasks.add({
      input: "SELECT $1",
      args: { a: undefined, b: { c: undefined, d: [{ e: undefined, n: 1 }] } },
    });
    assert.deepEqual((await tasks.get(id))?.args, { b: { d: [{ n: 1 }] } });
  });

  it("runs in the caller's transaction, with the caller's client", async () => {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      const rolledBack = await tasks.add("SELECT 'rolled back'", { client });
      assert.equal(await tasks.get(rolledBack), null, "other connections do not see it");
      assert.equal((await tasks.get(rolledBack, { client }))?.state, "PLAN");
      await client.query("ROLLBACK");
      assert.equal(await tasks.get(rolledBack), null);
      await fails(tasks.wait(rolledBack), "TASK_MISSING", /rolled back or has not been committed/);
      await client.query("BEGIN");
      const [one = "", two = ""] = await tasks.addMany(["SELECT 'one'", "SELECT 'two'"], { client });
      assert.equal((await tasks.stop(one, { client })).outcome, "changed");
      assert.equal((await tasks.delete(two, { client })).outcome, "changed");
      await client.query("COMMIT");
      assert.equal((await tasks.get(one))?.state, "STOP");
      assert.equal(await tasks.get(two), null);
    } finally {
      client.release();
    }
  });

  it("fails or leaves the task out if its key is taken", async () => {
    const id = await tasks.add({ input: "SELECT", key: "once", plan: "2100-01-01" });
    const again = { input: "SELECT 'again'", key: "once" };
    const remedy = 'if one task is enough, ifKeyTaken: "join" or "skip" makes this no error$';
    const named = new RegExp(`: task ${id} waits with the key "once"; ${remedy}`);
    await fails(tasks.add(again), "TASK_KEY_TAKEN", named);
    await fails(tasks.addMany([{ input: "SELECT", key: "free" }, again]), "TASK_KEY_TAKEN", named);
    const unnamed = new RegExp(`: another task waits with the key "once"; ${remedy}`);
    const client = await openClient();
    await client.query("BEGIN");
    await fails(tasks.add(again, { client }), "TASK_KEY_TAKEN", unnamed);
    await client.query("ROLLBACK");
    assert.equal(await tasks.add(again, { ifKeyTaken: "skip" }), null);
    const added = await tasks.addMany([again, { input: "SELECT", key: "other" }, again], { ifKeyTaken: "skip" });
    assert.equal(added.length, 1);
    assert.equal((await tasks.get(added[0] ?? ""))?.key, "other");
    assert.equal((await tasks.get(id))?.state, "PLAN");
  });

  it("joins the task that waits with the key, and locks its row in the caller's transaction", async () => {
    const key = "joined";
    const id = await tasks.add({ input: "SELECT 1", key, plan: "2100-01-01" });
    const again = { input: "SELECT 'again'", key };
    assert.equal(await tasks.add(again, { ifKeyTaken: "join" }), id);
    const other = { input: "SELECT", key: "joined other", plan: "2100-01-01" };
    const ids = await tasks.addMany([other, again, { input: "SELECT" }, other], { ifKeyTaken: "join" });
    assert.deepEqual([ids.length, ids[1], ids[3] === ids[0], new Set(ids).size], [4, id, true, 3]);
    assert.equal((await tasks.get(id))?.input, "SELECT 1");

    const client = await openClient();
    const isFree = "SELECT id::text FROM task WHERE id = $1 FOR UPDATE SKIP LOCKED";
    await client.query("BEGIN");
    assert.equal(await tasks.add(again, { ifKeyTaken: "join", client }), id);
    assert.deepEqual((await pool.query(isFree, [id])).rows, []);
    await client.query("ROLLBACK");
    assert.deepEqual((await pool.query(isFree, [id])).rows, [{ id }]);
    for (const ifKeyTaken of ["join", "skip"] as const) {
      const message = new RegExp(`^expected a task with a key, because of ifKeyTaken: "${ifKeyTaken}"$`);
      await refuses(tasks.add("SELECT 1", { ifKeyTaken }), message);
      await refuses(tasks.addMany([{ input: "SELECT 1", key: null }], { ifKeyTaken }), message);
      assert.deepEqual(await tasks.addMany([], { ifKeyTaken }), []);
    }
    await rejects(
      tasks.addMany([again, again, { input: "SELECT", plan: "soon" }], { ifKeyTaken: "join" }),
      /rejects tasks\[2\]: invalid input syntax for type timestamp/,
    );
  });

  it("refuses what the table refuses, and keeps the caller's client usable outside a transaction", async () => {
    const client = await openClient();
    const rejected: [object, RegExp][] = [
      [{ active: "-1 hour" }, /rejects the task: active must be above 0, got "-1 hour": new row/],
      [{ repeat: "1 s", keep: "1 hour ago" }, /: keep must not be below 0, got "1 hour ago": new/],
      ...["group", "max", "plan", "delete", "atomic"].map((name): [object, RegExp] => [
        { [name]: null },
        new RegExp(`rejects the task: ${name} must not be null: leave it out for its default \\(SQLSTATE 23502\\)$`),
      ]),
      [{ timeout: "soon" }, /the task: timeout: invalid input syntax for type interval/],
      [{ backoff: "2 bananas", keep: "1 day" }, /the task: backoff: invalid input syntax/],
      [{ delay: "999999999 years" }, /the task: delay: interval .*out of range/],
      // The sum with the time of the statement is out of range, and the server does not name a value.
      [{ delay: "999999 years", timeout: "1 s" }, /: delay or timeout: timestamp out of/],
      [{ rule: "99 * * * *" }, /99/],
      [{ delimiter: "ab" }, /delimiter with one ASCII character/],
    ];
    for (const [values, message] of rejected) {
      await rejects(tasks.add({ input: "SELECT", ...values }, { client }), message);
    }
    for (const [task, message] of [
      [{ input: "  " }, /task's SQL in input/],
      [{}, /task's SQL in input, got nothing/],
      [{ input: "SELECT", delay: "1 s", plan: new Date() }, /plan and delay/],
      [{ input: "SELECT", plan: new Date("never") }, /valid date/],
    ] as const) {
      await refuses(tasks.add(untyped(task), { client }), message);
    }
    assert.ok(Number(await tasks.add("SELECT", { client })) > 0);
  });
});

describe("addMany", () => {
  it("says which task is refused, if this is known", async () => {
    const before = await inputs();
    await tasks.add({ input: "SELECT 'taken'", key: "taken" });
    const good = { input: "SELECT", data: "x" };
    const refused: [object, string, RegExp][] = [
      [{}, "USAGE", /^tasks\[2\]: expected the task's SQL in input, got nothing$/],
      [{ input: "SELECT", grup: "g" }, "USAGE", /^tasks\[2\]: "grup" is not /],
      [{ input: "SELECT", args: [undefined] }, "USAGE", /^tasks\[2\]: expected args\[0\] /],
      [{ input: "SELECT", delimiter: "ab" }, "TASK_REJECTED", /^tasks\[2\]: expected delimiter /],
      [{ input: "SELECT", timeout: "soon" }, "TASK_REJECTED", /rejects tasks\[2\]: timeout: invalid input syntax/],
      [{ input: "SELECT", delay: "soon" }, "TASK_REJECTED", /rejects tasks\[2\]: delay: invalid input syntax/],
      [{ input: "SELECT", active: "-1 hour" }, "TASK_REJECTED", /rejects tasks\[2\]: active must be above 0, /],
      [{ input: "SELECT", key: "taken" }, "TASK_KEY_TAKEN", /rejects tasks\[2\]: /],
    ];
    for (const [wrong, code, message] of refused) {
      const given = ["SELECT", { ...good, group: "g", key: "free", delay: "1 s" }, untyped(wrong), good];
      await fails(tasks.addMany(given), code, message);
    }
    const twice = [good, { input: "SELECT", key: "twice" }, { input: "SELECT", key: "twice" }];
    await fails(
      tasks.addMany(twice),
      "TASK_KEY_TAKEN",
      /rejects tasks\[2\]: .*: several of the tasks have the key "twice"; /,
    );
    assert.deepEqual(await inputs(), [...before, "SELECT 'taken'"]);
  });

  it("finds out which task is refused if the server does not say so", async () => {
    const own = await createDatabase();
    const client = await own.connect();
    await client.query("ALTER TABLE task ADD COLUMN ticket int UNIQUE, ADD COLUMN age int CHECK (age > 0)");
    await using ours = new TaskClient(own.url);
    const many = Array.from({ length: 21 }, (_, n) => ({ input: "SELECT", retry: n, columns: { age: 1, ticket: n } }));
    const at = (n: number, wrong: object): Promise<string[]> =>
      ours.addMany(many.map((good, index) => (index === n ? { ...good, ...wrong } : good)));
    for (const n of [0, 10, 11, 20]) {
      const place = `rejects tasks\\[${n}\\]: `;
      await fails(at(n, { retry: -1 }), "TASK_REJECTED", new RegExp(`${place}retry must be 0 or more, not -1 `));
      await fails(at(n, { rule: "never" }), "TASK_REJECTED", new RegExp(place));
      await fails(at(n, { columns: { age: 0 } }), "TASK_REJECTED", new RegExp(`${place}.*"task_age_check"`));
      await fails(at(n, { columns: { agee: 1 } }), "TASK_REJECTED", new RegExp(`${place}.*"agee"`));
    }
    await fails(at(20, { columns: { ticket: 3 } }), "TASK_REJECTED", /rejects tasks\[20\]: duplicate key /);
    await fails(
      ours.addMany(many.map((good) => ({ ...good, retry: -1 }))),
      "TASK_REJECTED",
      /rejects tasks\[0\]: retry/,
    );
    // The caller's client may be in a transaction.
    await using callers = new TaskClient(client);
    const [first = ""] = await callers.addMany(many.slice(0, 2));
    const unknown = callers.addMany([many[2] ?? "", { input: "SELECT", retry: -1 }]);
    await fails(unknown, "TASK_REJECTED", /rejects one of the tasks: retry must be 0 or more, not -1 /);
    const { rows } = await client.query("SELECT count(*)::integer FROM task");
    assert.deepEqual([rows, first === ""], [[{ count: 2 }], false]);
  });

  it("adds tasks with different columns in their order, and none if one is refused", async () => {
    const before = await inputs();
    const ids = await tasks.addMany([
      "SELECT 'a'",
      { input: "SELECT 'b'", group: "b" },
      { input: "SELECT 'c'", delay: "1 h" },
    ]);
    assert.deepEqual((await inputs()).slice(before.length), ["SELECT 'a'", "SELECT 'b'", "SELECT 'c'"]);
    assert.deepEqual(await Promise.all(ids.map(async (id) => (await tasks.get(id))?.group)), ["group", "b", "group"]);
    await rejects(tasks.addMany(["SELECT 'd'", { input: "SELECT", max: 2 ** 31 }]), /integer/);
    assert.equal((await inputs()).length, before.length + 3);
    assert.deepEqual(await tasks.addMany([]), []);
  });

  it("adds more tasks than one statement can hold, all or none", async () => {
    const own = await createDatabase();
    await using ours = new TaskClient(own.url);
    const many = Array.from({ length: 40_000 }, (_, n) => ({ input: `SELECT ${n}`, data: String(n) }));
    const ids = await ours.addMany(many);
    assert.equal(new Set(ids).size, many.length);
    assert.equal((await ours.get(ids.at(-1) ?? ""))?.data, "39999");
    const wrong = { input: "SELECT", data: "x", timeout: "soon" };
    await rejects(ours.addMany([...many, wrong]), /rejects tasks\[40000\]: invalid input syntax for type interval/);
    const client = await own.connect();
    const { rows } = await client.query<{ count: string }>("SELECT count(*) FROM task");
    assert.equal(rows[0]?.count, "40000");
  });
});

describe("list", () => {
  it("yields matching tasks page by page, newest first", async () => {
    const own = await createDatabase();
    await using ours = new TaskClient(own.url);
    const ids = await ours.addMany(
      Array.from({ length: 25 }, (_, n) => ({ input: `SELECT ${n}`, group: `g${n % 2}` })),
    );
    assert.deepEqual(await idsOf(ours.list({ pageSize: 10 })), ids.toReversed());
    const odd: string[] = [];
    for await (const { input, group, state } of ours.list({
      group: "g1",
      states: ["PLAN"],
      pageSize: 3,
      characters: 3,
    })) {
      assert.deepEqual([input, group, state], ["SEL", "g1", "PLAN"]);
      odd.push(input);
    }
    assert.equal(odd.length, 12);
    assert.deepEqual(await idsOf(ours.list({ before: ids[3] ?? "" })), ids.slice(0, 3).toReversed());
    const waits = await ours.add({ input: "SELECT", after: [ids[0] ?? ""] });
    assert.deepEqual(await idsOf(ours.list({ waitingFor: ids[0] ?? "" })), [waits]);
    const keyed = await ours.add({ input: "SELECT", key: "list" });
    await ours.add({ input: "SELECT", key: "list 2" });
    for (const options of [{ key: "list" }, { key: "list", states: ["PLAN"] as const }]) {
      assert.deepEqual(await idsOf(ours.list(options)), [keyed]);
    }
    assert.equal((await ours.list({ key: "no" }).next()).done, true);
    const nowhere = new TaskClient(own.url, { table: "nowhere" });
    closing.push(() => nowhere.end());
    await fails(nowhere.list({ key: "list" }).next(), "SCHEMA_MISSING", /nowhere/);
    await refuses(ours.list({ since: "someday" }).next(), /someday/);
  });

  it("ends when its signal is aborted", async () => {
    const controller = new AbortController();
    const list = tasks.list({ pageSize: 1, signal: controller.signal });
    await list.next();
    controller.abort(new Error("enough"));
    await assert.rejects(list.next(), /enough/);
  });
});

describe("stop, retry and delete", () => {
  it("return a result for each id, and say why a task was not changed", async () => {
    const [first = "", second = ""] = await tasks.addMany(["SELECT", "SELECT"]);
    const stopped = { outcome: "changed", state: "PLAN", text: "stopped before it ran" };
    assert.deepEqual(await tasks.stop([second, first, 9_999_999_999]), [
      { id: second, ...stopped },
      { id: first, ...stopped },
      { id: "9999999999", outcome: "missing", state: null, text: "no such task" },
    ]);
    const again = await tasks.stop(first);
    assert.deepEqual([again.outcome, again.state, again.text], ["refused", "STOP", "already STOP"]);
    assert.deepEqual(
      (await tasks.retry([first, second])).map(({ outcome }) => outcome),
      ["changed", "changed"],
    );
    assert.deepEqual(
      (await tasks.delete([first, second])).map(({ outcome }) => outcome),
      ["changed", "changed"],
    );
    assert.deepEqual(await tasks.delete([]), []);
  });

  it("retry only tasks that are still in the given states", async () => {
    const ids = await tasks.addMany([1, 2, 3, 4].map((n) => ({ input: `SELECT 'retry ${n}'` })));
    const [failed = "", stopped = "", waiting = "", done = ""] = ids;
    await pool.query("UPDATE task SET state = 'FAIL' WHERE id = ANY ($1)", [[failed, done]]);
    await tasks.stop(stopped);
    const listed = await idsOf(tasks.list({ states: ["FAIL"], text: "'retry " }));
    assert.deepEqual(listed, [done, failed]);
    // Somebody else has retried this one since it was listed, and it has succeeded.
    await pool.query("UPDATE task SET state = 'DONE', output = 'kept' WHERE id = $1", [done]);
    assert.deepEqual(await tasks.retry([...listed, stopped, waiting], { states: ["FAIL"] }), [
      { id: done, outcome: "refused", state: "DONE", text: "is DONE, which is none of the given states" },
      { id: failed, outcome: "changed", state: "FAIL", text: "was FAIL, runs again now" },
      { id: stopped, outcome: "refused", state: "STOP", text: "is STOP, which is none of the given states" },
      { id: waiting, outcome: "refused", state: "PLAN", text: "already waiting (PLAN)" },
    ]);
    const kept = await tasks.get(done);
    assert.deepEqual([kept?.state, kept?.output], ["DONE", "kept"]);
    const one = await tasks.retry(stopped, { states: ["FAIL", "STOP"] });
    assert.equal(one.outcome, "changed");
    assert.equal((await tasks.retry(done)).outcome, "changed", "without states, also a task that is DONE");
  });

  it("name the given states rather than a key as the reason why a task is not retried", async () => {
    const key = "retried with states";
    const done = await tasks.add({ input: "SELECT", key });
    await pool.query("UPDATE task SET state = 'DONE' WHERE id = $1", [done]);
    await tasks.add({ input: "SELECT", key });
    const { outcome, text } = await tasks.retry(done, { states: ["FAIL"] });
    assert.deepEqual([outcome, text], ["refused", "is DONE, which is none of the given states"]);
  });

  it("delete a running task only when asked to", async () => {
    const id = await tasks.add("SELECT");
    await pool.query("UPDATE task SET state = 'WORK', owner = '1 x' WHERE id = $1", [id]);
    const refused = await tasks.delete(id);
    assert.equal(refused.outcome, "refused");
    const remedy = "with the option running: true, it is deleted and its run cancelled";
    assert.equal(refused.text, `running (WORK): ${remedy}`);
    assert.equal((await tasks.delete(id, { running: true })).outcome, "changed");
  });
});

/** Adds a failed task whose key another task waits with, one that can be retried, and a table of the caller's. */
async function prepare(): Promise<{ client: Client; ours: TaskClient; taken: string; free: string }> {
  const own = await createDatabase();
  const client = await own.connect();
  const ours = new TaskClient(own.url);
  closing.push(() => ours.end());
  const [taken = "", free = ""] = await ours.addMany([{ input: "SELECT 1", key: "k" }, "SELECT 2"]);
  await client.query("UPDATE task SET state = 'FAIL'");
  await ours.add({ input: "SELECT 3", key: "k" });
  await client.query("CREATE TABLE mine (n int)");
  return { client, ours, taken, free };
}

const rowsOfMine = async (client: Client): Promise<unknown[]> => (await client.query("SELECT n FROM mine")).rows;

describe("changes in the caller's transaction", () => {
  for (const [kind, wrap] of [
    ["a driver that tells whether there is a transaction", (client: Client): SqlClient => client],
    [
      "one that does not",
      (client: Client): SqlClient => ({ query: async (text, values) => await client.query(text, values) }),
    ],
  ] as const) {
    it(`leave it usable if the key of a retried task is taken, with ${kind}`, async () => {
      const { client, ours, taken, free } = await prepare();
      for (const change of [
        async () => await ours.retry(taken, { client: wrap(client) }),
        async () => await new TaskClient(wrap(client)).retry(taken),
      ]) {
        await client.query("BEGIN; INSERT INTO mine VALUES (1)");
        const { outcome, text } = await change();
        assert.equal(outcome, "refused");
        assert.match(
          text,
          /^another task with the same key waits: task (\d+); the command pg-task run-now \1 runs that one now$/,
        );
        assert.equal((await client.query("COMMIT")).command, "COMMIT");
      }
      assert.equal((await rowsOfMine(client)).length, 2);
      await client.query("BEGIN; INSERT INTO mine VALUES (2)");
      const outcomes = (await ours.retry([free, taken, "999"], { client: wrap(client) })).map(({ outcome }) => outcome);
      assert.deepEqual(outcomes, ["changed", "refused", "missing"]);
      assert.equal((await client.query("COMMIT")).command, "COMMIT");
      assert.equal((await ours.get(free))?.state, "PLAN");
      assert.equal((await rowsOfMine(client)).length, 3);
      assert.equal((await ours.stop(free, { client: wrap(client) })).outcome, "changed", "also without a transaction");
    });
  }

  it("leave it usable if a trigger refuses", async () => {
    const { client, ours, taken, free } = await prepare();
    await client.query(`
      CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
      CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON task FOR EACH ROW WHEN (OLD.key = 'k') EXECUTE FUNCTION refuse()`);
    await client.query("BEGIN; INSERT INTO mine VALUES (1)");
    for (const change of [
      await ours.retry([taken, free], { client }),
      await ours.stop([taken, free], { client }),
      await ours.delete([taken, free], { client }),
    ]) {
      assert.deepEqual(change[1]?.outcome, "changed", JSON.stringify(change));
      if (change[0]?.outcome !== "refused") assert.match(change[0]?.text ?? "", /not this one/);
    }
    assert.equal((await client.query("COMMIT")).command, "COMMIT");
    assert.deepEqual(await rowsOfMine(client), [{ n: 1 }]);
    assert.equal(await ours.get(free), null);
    assert.equal((await ours.get(taken))?.state, "FAIL");
  });

  it("fail if the whole transaction has to be tried again", async () => {
    const { client, ours, free } = await prepare();
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await client.query("SELECT FROM mine");
    await ours.retry(free);
    await assert.rejects(ours.stop(free, { client }), { code: "STATEMENT_FAILED", sqlState: "40001" });
    await client.query("ROLLBACK");
    assert.equal((await ours.get(free))?.state, "PLAN");
  });
});

const near = (key: string, meant: string): RegExp => new RegExp(`^"${key}" is not .*: perhaps "${meant}" is meant$`);

describe("unknown options", () => {
  it("are refused in tasks, with the nearest known name, before anything is added", async () => {
    const before = await inputs();
    for (const [key, meant] of [
      ["inpt", "input"],
      ["dealy", "delay"],
      ["grp", "group"],
      ["gao", "gap"],
    ] as const) {
      await refuses(tasks.add(untyped({ input: "SELECT 1", [key]: "a" })), near(key, meant));
    }
    await refuses(
      tasks.addMany(["SELECT 1", untyped({ input: "SELECT 2", grup: "a" })]),
      /^tasks\[1\]: "grup" is not .*: perhaps "group"/,
    );
    await refuses(
      tasks.add(untyped({ input: "SELECT 1", customer: 5 })),
      /columns of your own belong in its property columns.*: expected one of input, args, /,
    );
    assert.deepEqual(await inputs(), before);
    assert.match(await tasks.add(untyped({ input: "SELECT 1", dealy: undefined })), /^\d+$/);
  });

  it("are refused in the options of each method", async () => {
    const client = await openClient();
    const id = await tasks.add("SELECT 1");
    const options = untyped({ clinet: client });
    for (const call of [
      tasks.add("SELECT 1", options),
      tasks.get(id, options),
      tasks.stop(id, options),
      tasks.retry(id, options),
      tasks.delete(id, options),
    ]) {
      await refuses(call, near("clinet", "client"));
    }
    await refuses(tasks.addMany([], untyped({ ifkeyTaken: "skip" })), near("ifkeyTaken", "ifKeyTaken"));
    await refuses(tasks.delete(id, untyped({ runing: true })), near("runing", "running"));
    await refuses(tasks.wait(id, untyped({ singal: null })), near("singal", "signal"));
    await refuses(tasks.list(untyped({ state: ["DONE"] })).next(), near("state", "states"));
    await refuses(tasks.changes(untyped({ id: [id] })).next(), near("id", "ids"));
    assert.throws(() => new TaskClient(pool, untyped({ tabel: "task" })), { code: "USAGE" });
  });
});

it("a Client in place of options is refused with the way to give it", async () => {
  const given = untyped({ client: await openClient(), pool });
  const id = await tasks.add("SELECT 1");
  for (const call of [
    () => tasks.add("SELECT 1", given.client),
    () => tasks.addMany(["SELECT 1"], given.client),
    () => tasks.get(id, given.client),
    () => tasks.delete(id, given.client),
  ]) {
    await refuses(call(), /^expected an object with options, got a Client: write \{ client \}$/);
  }
  await refuses(tasks.wait(id, given.client), /^expected an object with options, got a Client$/);
  await refuses(tasks.add("SELECT 1", given.pool), /^expected an object with options, got a Pool$/);
  assert.equal((await tasks.get(id))?.state, "PLAN");
});

it("a Pool or undefined as the client of a call is refused, and nothing is done", async () => {
  const before = await inputs();
  const id = await tasks.add("SELECT 'kept'");
  for (const [wrong, got] of [
    [pool, "an object"],
    [{}, "an object"],
    [null, "null"],
    [undefined, "undefined: leave client out if the call is not for your transaction"],
  ] as const) {
    const pools = wrong === undefined ? "" : " .*\\(a Pool itself would not .*\\),";
    const message = new RegExp(`^expected client to be a Client of pg,${pools} got ${got}$`);
    const options = untyped({ client: wrong });
    for (const call of [
      () => tasks.add("SELECT 1", options),
      () => tasks.addMany(["SELECT 1"], options),
      () => tasks.get(id, options),
      () => tasks.stop(id, options),
      () => tasks.retry([id], options),
      () => tasks.delete(id, options),
    ]) {
      await refuses(call(), message);
    }
  }
  assert.deepEqual(await inputs(), [...before, "SELECT 'kept'"]);
  assert.equal((await tasks.get(id))?.state, "PLAN");
});

it("values that an option cannot have are refused", async () => {
  const id = await tasks.add("SELECT 1");
  const refused: [object, "add" | "retry" | "delete" | "wait" | "list" | "changes", RegExp][] = [
    [{ ifKeyTaken: "ignore" }, "add", /^expected ifKeyTaken to be "error", "skip" or "join", got "ignore"$/],
    [
      { states: [] },
      "retry",
      /^expected states to be an array of at least one state of tasks that have ended \(DONE, /,
    ],
    [{ states: ["PLAN"] }, "retry", /^expected states to be .*, got \["PLAN"\]$/],
    [{ states: "FAIL" }, "retry", /^expected states to be .*, got "FAIL"$/],
    [{ running: "no" }, "delete", /^expected running to be true or false, got "no"$/],
    [{ signal: 500 }, "wait", /^expected signal to be an AbortSignal, got 500$/],
    [{ states: ["FAILED"] }, "list", /^expected states to be an array of states \(PLAN, .*, STOP\), got \["FAILED"\]$/],
    [{ states: "FAIL" }, "list", /^expected states to be an array /],
    [{ states: ["FAILED"] }, "changes", /^expected states to be an array /],
    [{ states: [] }, "changes", /^expected states to be an array of at least one state \(PLAN, .*\), got \[\]$/],
    [{ ids: [id], group: "g" }, "changes", /^expected ids or group, got both: remove ids, or remove group$/],
    [{ ids: [], states: ["DONE"], key: "k" }, "changes", /^expected ids or states and key, got both: /],
    [{ group: null }, "list", /^expected group to be a string, got null$/],
    [{ text: 5 }, "list", /^expected text /],
    [{ key: 5 }, "list", /^expected key to be a string, got 5$/],
    [{ key: null }, "changes", /^expected key to be a string, got null$/],
    [{ since: null }, "list", /^expected since to be a Date, or a time in PostgreSQL's syntax, got null$/],
    [{ until: 5 }, "changes", /^expected until /],
    [{ since: new Date(Number.NaN) }, "list", /^expected since to be .*, got an invalid date$/],
    [{ until: new Date(Number.NaN) }, "list", /^expected until to be .*, got an invalid date$/],
    [{ until: new Date(Number.NaN) }, "changes", /^expected until to be .*, got an invalid date$/],
    ...(["list", "changes"] as const).flatMap((method) =>
      ["group", "key", "text", "since", "until"].flatMap((name): [object, "list" | "changes", RegExp][] => [
        [{ [name]: "a\0" }, method, new RegExp(`^expected ${name} without the NUL character, got "a\\\\u0000"$`)],
        [{ [name]: "\ud800" }, method, new RegExp(`^expected ${name} without a lone surrogate .*, got "\\\\ud800"$`)],
      ]),
    ),
    ...(["list", "changes"] as const).flatMap((method): [object, "list" | "changes", RegExp][] => [
      [{ since: "soon" }, method, /^invalid since: invalid input syntax for type .*: "soon" \(SQLSTATE 22007\)$/],
      [{ since: "today", until: "2100-13-01" }, method, /^invalid until: date\/time field value out of range: /],
      [{ since: "today", until: "today Mars/X" }, method, /^invalid (?:since or )?until: time zone .* not recognized /],
    ]),
    [{ before: "x" }, "list", /^expected before to be a task's id, got "x"$/],
    [{ waitingFor: null }, "list", /^expected waitingFor /],
    [{ characters: -1 }, "list", /^expected characters to be a whole number from 0 /],
    [{ pageSize: 0 }, "list", /^expected pageSize to be a whole number from 1 /],
    [{ ids: id }, "changes", /^expected ids to be an array of tasks' ids, got "\d+"$/],
  ];
  for (const [options, method, message] of refused) {
    const given = untyped(options);
    const call = {
      add: () => tasks.add("SELECT 1", given),
      retry: () => tasks.retry(id, given),
      delete: () => tasks.delete(id, given),
      wait: () => tasks.wait(id, given),
      list: () => tasks.list(given).next(),
      changes: () => tasks.changes(given).next(),
    }[method];
    await refuses(call(), message);
  }
  for (const [options, message] of [
    [{ acquireTimeoutMs: "5" }, /^expected acquireTimeoutMs to be a number of ms from 0 to 2147483647, got "5"$/],
    [{ acquireTimeoutMs: Infinity }, /^expected acquireTimeoutMs /],
    [
      { answerTimeoutMs: 0 },
      /^expected answerTimeoutMs to be a number of ms from 1 to 2147483647, or Infinity, got 0$/,
    ],
    [{ reconnectMs: Number.NaN }, /^expected reconnectMs to be a number of ms from 0, or Infinity, got NaN$/],
    [{ schema: "" }, /^expected schema to be a name, got ""$/],
    [{ table: null }, /^expected table to be a name, got null$/],
    [{ table: "a\0" }, /^expected table without the NUL character, got "a\\u0000"$/],
    [{ schema: "\udc00" }, /^expected schema without a lone surrogate \(half of a character\), got "\\udc00"$/],
  ] as const) {
    assert.throws(() => new TaskClient(pool, untyped(options)), { code: "USAGE", message });
  }
  assert.equal((await tasks.get(id))?.state, "PLAN");
});

it("values of a wrong type in a task are refused, and nothing is added", async () => {
  const before = await inputs();
  const texts = "group rule zone key upon delimiter escape quote null data remote".split(" ");
  const flags = "catchup overlap drift delete save atomic header string".split(" ");
  const refused: [object, RegExp][] = [
    ...texts.flatMap((name): [object, RegExp][] => [
      [{ [name]: ["a"] }, new RegExp(`^expected ${name} to be a string, got \\["a"\\]$`)],
      [{ [name]: 5 }, new RegExp(`^expected ${name} to be a string, got 5$`)],
      [{ [name]: { a: 1 } }, new RegExp(`^expected ${name} to be a string, got an object$`)],
      [{ [name]: new Date() }, new RegExp(`^expected ${name} to be a string, got a Date$`)],
    ]),
    ...flags.flatMap((name): [object, RegExp][] => [
      [{ [name]: "true" }, new RegExp(`^expected ${name} to be true or false, got "true"$`)],
      [{ [name]: 1 }, new RegExp(`^expected ${name} to be true or false, got 1$`)],
    ]),
    ...["max", "retry", "count"].flatMap((name): [object, RegExp][] => [
      [{ [name]: "5" }, new RegExp(`^expected ${name} to be a whole number, got "5"$`)],
      [{ [name]: 1.5 }, new RegExp(`^expected ${name} to be a whole number, got 1.5$`)],
      [{ [name]: [1] }, new RegExp(`^expected ${name} to be a whole number, got \\[1\\]$`)],
    ]),
    [{ max: 5n }, /^expected max to be a whole number, got 5n$/],
    [{ data: new URL(url) }, /^expected data to be a string, got a URL object: give its href$/],
    [{ key: Promise.resolve("k") }, /^expected key to be a string, got a promise: await it$/],
    [{ plan: 5 }, /^expected plan to be a Date, or a time in PostgreSQL's syntax, got 5$/],
    [{ after: "1" }, /^expected after to be an array of tasks' ids, got "1"$/],
    [{ after: [["1"]] }, /^expected after to be an array of tasks' ids, got \[an array\]$/],
    [{ sqlstate: "40" }, /^expected sqlstate to be an array of strings, got "40"$/],
    [{ sqlstate: [40] }, /^expected sqlstate to be an array of strings, got \[40\]$/],
    [{ parent: {} }, /^expected parent to be a task's id, got an object$/],
    [{ input: { text: "SELECT" } }, /^expected the task's SQL in input, got an object$/],
    [{ input: ["SELECT"] }, /^expected the task's SQL in input, got \["SELECT"\]$/],
    [{ input: 5n }, /^expected the task's SQL in input, got 5n$/],
  ];
  for (const [wrong, message] of refused) {
    const task = untyped({ input: "SELECT 'wrong type'", ...wrong });
    await refuses(tasks.add(task), message);
    await refuses(tasks.addMany(["SELECT", task]), new RegExp(message.source.replace("^", "^tasks\\[1\\]: ")));
  }
  assert.deepEqual(await inputs(), before);
  const none = { rule: null, catchup: null, key: null, after: null, retry: null, sqlstate: null, parent: null };
  assert.match(await tasks.add({ input: "SELECT", ...none, data: null, remote: null }), /^\d+$/);
});

it("a list takes dates as times", async () => {
  const own = await createDatabase();
  const ours = new TaskClient(await own.connect());
  const [early, late] = await ours.addMany(
    ["2100-01-01T00:00:00.000Z", "2100-01-01T00:00:00.001Z"].map((plan) => ({ input: "SELECT", plan: new Date(plan) })),
  );
  const limit = new Date("2100-01-01T00:00:00.001Z");
  assert.deepEqual(await idsOf(ours.list({ since: limit })), [late]);
  assert.deepEqual(await idsOf(ours.list({ until: limit })), [early]);
});

it("arguments that are none are refused", async () => {
  const before = await inputs();
  const none = untyped({ undefined: undefined, null: null, number: 5, list: [], object: {} });
  const task = /^expected a task: its SQL, or an object with input, got /;
  const promise = Promise.resolve("1");
  const forgotten = untyped({ promise }).promise;
  await refuses(tasks.add(forgotten), /^expected a task: .*, got a promise: await it$/);
  await refuses(tasks.addMany(forgotten), /^expected an array of tasks, got a promise: await it$/);
  await refuses(tasks.wait(forgotten), /^expected a task's id, got a promise: await it$/);
  await refuses(tasks.stop([forgotten]), /^expected a task's id, got a promise: await it$/);
  for (const wrong of [none.undefined, none.null, none.number, none.list]) {
    await refuses(tasks.add(wrong), task);
    await refuses(tasks.addMany(["SELECT 1", wrong]), /^tasks\[1\]: expected a task: its SQL, or an object /);
  }
  const string = untyped({ sql: "SELECT 1" }).sql;
  for (const wrong of [none.undefined, none.null, none.number, none.object, string]) {
    await refuses(tasks.addMany(wrong), /^expected an array of tasks, got /);
  }
  for (const wrong of [none.undefined, none.null, none.object, [none.null], [["5"]]]) {
    for (const call of [tasks.stop(untyped([wrong])[0]), tasks.retry(wrong), tasks.delete(wrong)]) {
      await refuses(call, /^expected a task's id, got /);
    }
    await refuses(tasks.get(wrong), /^expected a task's id, got /);
    await refuses(tasks.wait(wrong), /^expected a task's id, got /);
  }
  const options = /^expected an object with options, got (?:null|a string|an array|another object)$/;
  const others = untyped({ text: "x", date: new Date(), signal: new AbortController().signal, map: new Map() });
  for (const wrong of [none.null, none.list, others.text, others.date, others.signal, others.map]) {
    assert.throws(() => new TaskClient(pool, wrong), { code: "USAGE", message: options });
    await refuses(tasks.add("SELECT 1", wrong), options);
    await refuses(tasks.get(1, wrong), options);
    await refuses(tasks.wait(1, wrong), options);
    await refuses(tasks.delete(1, wrong), options);
    await refuses(tasks.list(wrong).next(), options);
    await refuses(tasks.changes(wrong).next(), options);
  }
  class Options {
    readonly group = "options";
  }
  assert.deepEqual(await tasks.list(new Options()).next(), { value: undefined, done: true });
  await refuses(tasks.add(untyped({ input: "SELECT", columns: null })), /^expected columns to be an object, got null$/);
  await refuses(tasks.add(untyped({ input: "SELECT", delay: null })), /^expected delay to be an interval, got null$/);
  assert.deepEqual(await inputs(), before);
});

describe("errors", () => {
  it("are not retryable if the server refuses the role, its password or the database", async () => {
    for (const [part, value, sqlState, message] of [
      ["pathname", "/no_such_database", "3D000", /"no_such_database" does not exist \(SQLSTATE 3D000\)/],
      ["username", "no_such_role", "28000", /\(SQLSTATE 28000\)/],
    ] as const) {
      const wrong = new URL(url);
      wrong[part] = value;
      const client = new TaskClient(wrong.href);
      await assert.rejects(client.add("SELECT 1"), {
        code: "CONNECTION_REJECTED",
        sqlState,
        retryable: false,
        message,
      });
      // A wait would otherwise try to reconnect for as long as reconnectMs says.
      await assert.rejects(client.wait(1), { code: "CONNECTION_REJECTED", sqlState, retryable: false });
      await client.end();
    }
  });

  it("are not retryable if the caller's transaction takes no statements, but if the server may become writable", async () => {
    const id = await tasks.add("SELECT 1");
    const client = await openClient();
    const aborted = { code: "STATEMENT_FAILED", sqlState: "25P02", retryable: false, message: /: ROLLBACK first$/ };
    await client.query("BEGIN");
    await assert.rejects(client.query("SELECT 1/0"));
    await assert.rejects(tasks.add("SELECT 1", { client }), aborted);
    await assert.rejects(tasks.get(id, { client }), aborted);
    await assert.rejects(tasks.stop(id, { client }), aborted);
    await client.query("ROLLBACK");
    const readOnly = { code: "STATEMENT_FAILED", sqlState: "25006", retryable: false };
    await client.query("BEGIN READ ONLY");
    await assert.rejects(tasks.stop([id, id], { client }), readOnly);
    await assert.rejects(tasks.add("SELECT 1", { client }), readOnly);
    await client.query("ROLLBACK");
    const standby = new Pool({ connectionString: url, options: "-c default_transaction_read_only=on" });
    closing.push(() => endPool(standby));
    const ours = new TaskClient(standby);
    const unwritable = { code: "CONNECTION_READ_ONLY", sqlState: "25006", retryable: true };
    await assert.rejects(ours.add("SELECT 1"), unwritable);
    await assert.rejects(ours.stop(id), unwritable);
    assert.equal((await ours.get(id))?.state, "PLAN");
  });

  it("a Client that was never connected is refused, and one that is connecting is not", async () => {
    const id = await tasks.add("SELECT 1");
    const client = new Client({ connectionString: url });
    const ours = new TaskClient(client);
    const never = /^expected a Client that is connected: await its connect\(\) first$/;
    for (const call of [
      tasks.add("SELECT 1", { client }),
      tasks.addMany(["SELECT 1"], { client }),
      tasks.get(id, { client }),
      tasks.stop(id, { client }),
      ours.add("SELECT 1"),
      ours.addMany(["SELECT 1", { input: "SELECT 1", group: "g" }]),
      ours.get(id),
      ours.delete(id),
      ours.wait(id),
      ours.list().next(),
      ours.changes().next(),
    ]) {
      await refuses(call, never);
    }
    const connected = client.connect();
    closing.push(() => client.end());
    const [task] = await Promise.all([tasks.get(id, { client }), connected]);
    assert.equal(task?.state, "PLAN");
    assert.equal((await ours.get(id))?.state, "PLAN");
  });

  it("a Client whose connection failed or was ended is lost", async () => {
    const wrong = new URL(url);
    wrong.pathname = "/no_such_database";
    const refused = new Client({ connectionString: wrong.href });
    await assert.rejects(refused.connect());
    await assert.rejects(tasks.add("SELECT 1", { client: refused }), { code: "CONNECTION_LOST" });
    const ended = new Client({ connectionString: url });
    await ended.connect();
    await ended.end();
    await assert.rejects(tasks.add("SELECT 1", { client: ended }), { code: "CONNECTION_LOST" });
  });

  it("a pool that was ended is named, and ends a wait at once", async () => {
    const own = new Pool({ connectionString: url });
    const ours = new TaskClient(own);
    const id = await ours.add({ input: "SELECT", plan: "2100-01-01" });
    await endPool(own);
    await assert.rejects(ours.add("SELECT 1"), { code: "CONNECTION_CLOSED", retryable: false });
    await fails(ours.wait(id), "CONNECTION_CLOSED", /^the pool of the TaskClient has been ended$/);
    await fails(ours.list().next(), "CONNECTION_CLOSED", /^the pool /);
  });

  it("a missing table is named", async () => {
    await using other = new TaskClient(pool, { schema: "nowhere", table: "task" });
    const calls = [
      () => other.add("SELECT"),
      () => other.get(1),
      () => other.wait(1),
      () => other.stop(1),
      () => other.list().next(),
      () => other.changes().next(),
    ];
    for (const call of calls) await fails(call(), "SCHEMA_MISSING", /no table "nowhere"\."task"/);
  });

  it("a missing privilege is named", async () => {
    await pool.query("CREATE ROLE library_nobody");
    const client = await openClient();
    await client.query("SET ROLE library_nobody");
    const nobody = new TaskClient(client);
    await fails(nobody.add("SELECT"), "SCHEMA_NOT_ALLOWED", /permission denied/);
    await fails(nobody.get(1), "SCHEMA_NOT_ALLOWED", /permission denied/);
    await client.query("RESET ROLE");
    await pool.query("DROP ROLE library_nobody");
  });

  it("an exhausted pool is reported in time, and its late connection returns to it", async () => {
    const small = openPool(1);
    const impatient = new TaskClient(small, { acquireTimeoutMs: 50, reconnectMs: 0 });
    const held = await small.connect();
    await fails(
      impatient.add("SELECT"),
      "CONNECTION_BUSY",
      /within 50 ms \(1 open, 0 idle, 1 waiting\): raise the pool's max, or pass the client of your transaction to the call$/,
    );
    await fails(impatient.wait(1), "CONNECTION_BUSY", /became free/);
    held.release();
    const patient = new TaskClient(small);
    assert.ok(Number(await patient.add("SELECT")) > 0);
  });

  it("an exhausted pool that gives up by itself is reported in the same way", async () => {
    const small = openPool(1);
    const held = await small.connect();
    // Only from now on, so that the connection above can take its time.
    small.options.connectionTimeoutMillis = 1;
    // The TaskClient itself never gives up, so it can only be the pool that does.
    const patient = new TaskClient(small, { acquireTimeoutMs: longestTimerMs });
    await fails(patient.add("SELECT"), "CONNECTION_BUSY", /became free/);
    held.release();
  });

  it("a server that cannot be reached is told from one that refuses, without the password", async () => {
    await using nobody = new TaskClient(`postgresql://u:hidden@${database.target.host}:1/x`);
    await assert.rejects(nobody.add("SELECT"), (error: unknown) => {
      assert.ok(error instanceof PgTaskError);
      assert.equal(error.code, "CONNECTION_FAILED");
      assert.match(error.message, /ECONNREFUSED/);
      assert.doesNotMatch(`${error.message}${error.stack}`, /hidden/);
      return true;
    });
  });

  it("a connection that is none, an id that is none, and an ended client are refused", async () => {
    for (const wrong of ["http://x", "postgresql://u:p@ss@host/x", `${url}\0`]) {
      assert.throws(() => new TaskClient(wrong), {
        code: "USAGE",
        message: /expected a (?:URL like postgresql|URL without the NUL|host name)/,
      });
    }
    for (const several of ["postgresql://u:hidden@a,b/x", "postgresql://u:hidden@a:1,b:2/x"]) {
      assert.throws(() => new TaskClient(several), { code: "USAGE", message: /^expected a URL with one host, / });
    }
    for (const [wrong, got] of [
      [{}, "an object"],
      [null, "null"],
      [7, "7"],
      [["postgresql://u:hidden@h/x"], "an array"],
      [undefined, "undefined"],
      [new URL("postgresql://u:hidden@h/x"), "a URL object: give its href"],
    ] as const) {
      const message = new RegExp(`^expected a Pool or Client of pg, or a URL like .*, got ${got}$`);
      assert.throws(() => Reflect.construct(TaskClient, [wrong]), { code: "USAGE", message });
    }
    for (const id of ["x", 1.5, Number.MAX_SAFE_INTEGER + 1, "9223372036854775808"]) {
      await refuses(tasks.get(id), /expected a task's id/);
    }
    const ended = new TaskClient(url);
    await ended.add("SELECT");
    await ended.end();
    await ended.end();
    await fails(ended.add("SELECT"), "CONNECTION_CLOSED", /has been ended/);
    await fails(ended.wait(1), "CONNECTION_CLOSED", /has been ended/);
  });

  it("a statement whose connection is lost fails with CONNECTION_LOST, and the next one gets another connection", async () => {
    const own = openPool(1);
    own.on("error", () => {});
    const ours = new TaskClient(own);
    const id = await ours.add("SELECT");
    const blocker = await openClient();
    await blocker.query("BEGIN");
    await blocker.query("LOCK TABLE task");
    const adding = ours.add("SELECT");
    const lost = fails(adding, "CONNECTION_LOST", /terminating connection due to administrator command/);
    for (let ended = 0; ended === 0;) {
      const { rows } = await blocker.query<{ ended: boolean }>(
        `SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'INSERT INTO%'`,
      );
      ended = rows.length;
    }
    await lost;
    await blocker.query("ROLLBACK");
    assert.equal((await ours.get(id))?.state, "PLAN");
  });
});

it("add can be aborted, and has added nothing then", async () => {
  await using adder = new TaskClient(database.url);
  const reason = new Error("no longer wanted");
  await assert.rejects(adder.add("SELECT 'early'", { signal: AbortSignal.abort(reason) }), reason);
  const locker = await database.connect();
  await locker.query("BEGIN; LOCK TABLE task IN ACCESS EXCLUSIVE MODE");
  for (const add of [
    (signal: AbortSignal) => adder.add("SELECT 'late'", { signal }),
    (signal: AbortSignal) => adder.addMany(["SELECT 'late'", "SELECT 'later'"], { signal }),
  ]) {
    const controller = new AbortController();
    const adding = add(controller.signal);
    await waitForLock(locker);
    controller.abort(reason);
    await assert.rejects(adding, reason);
  }
  await locker.query("COMMIT");
  assert.match(await adder.add("SELECT 'after'", { signal: new AbortController().signal }), /^\d+$/);
  const { rows } = await locker.query<{ input: string }>("SELECT input FROM task WHERE input ~ 'early|late'");
  assert.deepEqual(rows, []);
});

/** Waits until another connection to this database waits for a lock. */
async function waitForLock(client: Client): Promise<void> {
  for (;;) {
    const { rows } = await client.query(
      `SELECT FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
       WHERE NOT l.granted AND a.datname = current_database() AND a.query LIKE '%INSERT%'`,
    );
    if (rows.length > 0) return;
  }
}
