import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, it } from "node:test";
import { pino } from "pino";
import {
  PgTaskError,
  start,
  TaskClient,
  type EntryStatus,
  type PgTask,
  type StartOptions,
} from "../../../src/library/index.js";
import { lockClasses } from "../../../src/shared/postgres/advisoryLocks.js";
import type { Client } from "../../../src/shared/postgres/client.js";
import { configFolder } from "../../support/configFile.js";
import { createDatabase } from "../../support/database.js";
import { untyped } from "../../support/untyped.js";
import { closeGate, waitAt } from "../../support/gates.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const running: PgTask[] = [];
// Before the database, so that it is dropped after pg-task has ended.
after(() => Promise.all(running.map((pgTask) => pgTask.stop({ graceMs: 0 }))));
const database = await createDatabase();
const { url } = database;

async function begin(options: StartOptions): Promise<PgTask> {
  const pgTask = await start({ logger: false, ...options });
  running.push(pgTask);
  return pgTask;
}

/** A pino logger, and the lines that it has written. */
function recorder(level = "info"): {
  readonly logger: pino.Logger;
  readonly lines: Record<string, unknown>[];
} {
  const lines: Record<string, unknown>[] = [];
  const logger = pino({ level, name: "shop" }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { logger, lines };
}

const signalListeners = (): number[] =>
  ["SIGTERM", "SIGINT", "SIGHUP", "message"].map((name) => process.listenerCount(name));

it("runs tasks in this process, with its own logger and without signal handlers, until it is stopped", async () => {
  const before = signalListeners();
  const { logger, lines } = recorder();
  const pgTask = await begin({ config: { url, "pg_task.sleep": 100 }, logger });
  assert.deepEqual(signalListeners(), before);
  assert.equal(pgTask.role, "leader");
  assert.equal(pgTask.url, url);
  const [entry] = pgTask.entries;
  assert.deepEqual([entry?.state, entry?.table, entry?.reason], ["working", "task", null]);
  await using tasks = new TaskClient(url);
  assert.equal((await tasks.wait(await tasks.add("SELECT 42"))).output, "42");
  await pgTask.stop();
  assert.equal(await pgTask.stopped, null);
  assert.equal(pgTask.role, "stopped");
  const ready = lines.find(({ msg }) => msg === "ready");
  assert.deepEqual(
    [ready?.["component"], ready?.["name"], ready?.["level"], ready?.["url"]],
    ["pg_conf", "shop", 30, url],
  );
  assert.ok(
    lines.some(({ component }) => String(component).startsWith("pg_work ")),
    "lines of other threads",
  );
  assert.equal(lines.at(-1)?.["msg"], "stopped");
  assert.ok(lines.every(({ msg, time }) => typeof msg === "string" && typeof time === "number"));
});

it("refuses unknown options", async () => {
  await assert.rejects(start(untyped({ url, signel: undefined, loger: false })), {
    code: "USAGE",
    message: '"loger" is not an option of start: perhaps "logger" is meant',
  });
  await assert.rejects(start(untyped({ embedded: { prot: 5432 } })), {
    code: "USAGE",
    message: '"prot" is not an option of embedded: perhaps "port" is meant',
  });
});

it("refuses values that an option cannot have", async () => {
  const refused: [object, RegExp][] = [
    [{ url: new URL(url) }, /^expected url to be a string, got a URL object: give its href$/],
    [{ config: 5 }, /^expected config to be a configuration, or the path of a file, got 5$/],
    [{ config: "" }, /^expected config to be a configuration, or the path of a file, got ""$/],
    [{ config: new Date() }, /^expected config to be a configuration, or the path of a file, got a Date$/],
    [{ logger: true }, /^expected logger to be false, or a logger with the methods trace, debug, .*, fatal, got true$/],
    [{ logger: {} }, /^expected logger to be false, or a logger with the methods trace, .*, got an object$/],
    [{ logger: { info: assert.fail, error: assert.fail } }, /^expected logger /],
    [{ signals: "yes" }, /^expected signals to be true or false, got "yes"$/],
    [{ signal: {} }, /^expected signal to be an AbortSignal, got an object$/],
    [{ embedded: "yes" }, /^expected embedded to be true, false, or an object, got "yes"$/],
    [{ embedded: { port: 0 } }, /^expected port to be a whole number from 1 to 65535, got 0$/],
    [{ embedded: { data: 5 } }, /^expected data to be a name, got 5$/],
  ];
  for (const [options, message] of refused) {
    await assert.rejects(start(untyped({ url, ...options })), { code: "USAGE", message });
  }
  const { none, text, list, date } = untyped({ none: null, text: url, list: [], date: new Date() });
  for (const wrong of [none, text, list, date]) {
    await assert.rejects(start(wrong), {
      code: "USAGE",
      message: /^expected an object with options, got (?:null|a string|an array|another object)$/,
    });
  }
});

it("takes the level of the logger unless the configuration gives one", async () => {
  const quiet = recorder("error");
  await (await begin({ url, logger: quiet.logger })).stop();
  assert.deepEqual(quiet.lines, []);
  const verbose = recorder("debug");
  await (await begin({ url, logger: verbose.logger })).stop();
  assert.ok(verbose.lines.some(({ level }) => level === 20));
  const given = recorder("debug");
  await (await begin({ config: { url, "pg_conf.log": "error" }, logger: given.logger })).stop();
  assert.deepEqual(given.lines, []);
});

it("emits typed events", async () => {
  const events: string[] = [];
  const own = await createDatabase();
  const pgTask = await begin({ config: { url: own.url, "pg_task.sleep": 100 } });
  pgTask.on("role", (role) => events.push(`role ${role}`));
  pgTask.on("stopped", (error) => events.push(`stopped ${String(error)}`));
  const worked = new Promise<EntryStatus>((resolve) => {
    pgTask.on("worked", (entry) => {
      if ((entry.counts?.done ?? 0) > 0) resolve(entry);
    });
  });
  await using tasks = new TaskClient(own.url);
  await tasks.wait(await tasks.add("SELECT 1"));
  assert.equal((await worked).database, own.target.database);
  const reloaded = new Promise<void>((resolve) => void pgTask.once("reloaded", () => resolve()));
  const waits = new Promise<EntryStatus>((resolve) => {
    pgTask.on("entry", (entry) => {
      if (entry.state === "waiting") resolve(entry);
    });
  });
  await pgTask.reload({
    url: own.url,
    "pg_task.json": [{ data: own.target.database, user: own.target.user, schema: "gone", create: false }],
  });
  await reloaded;
  const entry = await waits;
  assert.equal(entry.schema, "gone");
  assert.match(entry.reason ?? "", /gone/);
  assert.match(entry.code ?? "", /^SCHEMA_/);
  await pgTask.stop();
  assert.deepEqual(events, ["role stopping", "role stopped", "stopped null"]);
});

it("is shown as JSON with its role, url and entries, also if it has listeners", async () => {
  const own = await createDatabase();
  const pgTask = await begin({ url: own.url });
  pgTask.on("role", () => {});
  const shown: Pick<PgTask, "role" | "url" | "entries"> = JSON.parse(JSON.stringify(pgTask));
  assert.deepEqual(Object.keys(shown), ["role", "url", "entries"]);
  assert.deepEqual([shown.role, shown.url, shown.entries[0]?.state], ["leader", own.url, "working"]);
  await pgTask.stop();
});

it("two in one process with the same configuration are leader and standby", async () => {
  const own = await createDatabase();
  const first = await begin({ url: own.url });
  const second = await begin({ url: own.url });
  assert.deepEqual([first.role, second.role], ["leader", "standby"]);
  assert.deepEqual(
    second.entries.map(({ state }) => state),
    ["none"],
  );
  const leads = new Promise<void>((resolve) => void second.once("ready", () => resolve()));
  await first.stop();
  await leads;
  assert.equal(second.role, "leader");
});

/** Waits until a standby looks for its table, or has started. Returns whether it has started. */
async function looksOrStarts(client: Client, starting: Promise<unknown>): Promise<boolean> {
  let hasStarted = false;
  const settle = (): void => void (hasStarted = true);
  starting.then(settle, settle);
  for (;;) {
    const { rowCount } = await client.query(
      "SELECT FROM pg_stat_activity WHERE application_name = 'pg_task check' AND datname = current_database()",
    );
    if (hasStarted || rowCount !== 0) return hasStarted;
  }
}

/** Takes the lock of the leader, so that a process that starts stands by. Returns a function that releases it. */
async function holdLeadership(client: Client): Promise<() => Promise<unknown>> {
  const parameters = [lockClasses.supervisor, "pg_task"];
  await client.query("SELECT pg_advisory_lock($1, hashtext($2))", parameters);
  return async () => await client.query("SELECT pg_advisory_unlock($1, hashtext($2))", parameters);
}

it("a standby has started when the leader has created the table", async () => {
  const own = await createDatabase("empty");
  const client = await own.connect();
  const blocker = await own.connect();
  // The leader cannot create the table until this transaction ends.
  await blocker.query("BEGIN; CREATE TABLE task ()");
  const { logger, lines } = recorder();
  const leading = begin({ url: own.url, logger });
  while (!lines.some(({ msg }) => msg === "became leader")) await client.query("SELECT");
  const standing = begin({ url: own.url });
  assert.equal(await looksOrStarts(client, standing), false);
  await blocker.query("ROLLBACK");
  const standby = await standing;
  assert.equal(standby.role, "standby");
  await using tasks = new TaskClient(own.url);
  assert.equal(await tasks.add("SELECT 1"), "1");
  await standby.stop();
  await (await leading).stop();
});

it("a standby has started when it leads instead", async () => {
  const own = await createDatabase("empty");
  const client = await own.connect();
  const release = await holdLeadership(client);
  const starting = begin({ url: own.url });
  assert.equal(await looksOrStarts(client, starting), false);
  await release();
  const pgTask = await starting;
  assert.equal(pgTask.role, "leader");
  await using tasks = new TaskClient(own.url);
  assert.equal(await tasks.add("SELECT 1"), "1");
  await pgTask.stop();
});

it("a standby that waits for its table is stopped by its signal", async () => {
  const own = await createDatabase("empty");
  const client = await own.connect();
  await holdLeadership(client);
  const controller = new AbortController();
  const starting = begin({ url: own.url, signal: controller.signal });
  const failed = assert.rejects(starting, {
    code: "START_ABORTED",
    message: "pg-task was stopped before it was ready",
  });
  assert.equal(await looksOrStarts(client, starting), false);
  controller.abort();
  await failed;
});

it("a standby does not wait for ever for a table that the leader does not create", async () => {
  const own = await createDatabase();
  const leader = await begin({ url: own.url });
  const standby = await begin({ config: { url: own.url, "pg_task.table": "other" } });
  assert.equal(standby.role, "standby");
  await using tasks = new TaskClient(own.url, { table: "other" });
  await assert.rejects(tasks.add("SELECT 1"), { code: "SCHEMA_MISSING" });
  await standby.stop();
  await leader.stop();
});

it("rejects an invalid configuration, and names the value", async () => {
  const refused: [StartOptions, string, RegExp][] = [
    [{ config: { url, "pg_task.sleep": 0 } }, "CONFIG_INVALID", /config: pg_task\.sleep: expected/],
    [{ config: [{ data: "x", sleep: -1 }] }, "CONFIG_INVALID", /config: \[0\]\.sleep/],
    [{ config: Object.assign({ url }, { "pg_task.slepe": 1 }) }, "CONFIG_INVALID", /pg_task\.slepe/],
    [{ config: "/no/such/file.json" }, "CONFIG_FILE_UNREADABLE", /no such file/],
    [{ url, config: { url } }, "CONFIG_CONFLICT", /^expected url or config\.url, got both: remove one of the two$/],
    [untyped({ url, config: "shop.json" }), "CONFIG_CONFLICT", /got both: remove url, or write it into shop\.json$/],
    [untyped({ url, config: [{ data: "x" }] }), "CONFIG_CONFLICT", /config that is an object, got an array of entries/],
    [
      untyped({ url, embedded: true }),
      "CONFIG_CONFLICT",
      /^url names a server, and embedded starts another one: remove one /,
    ],
    [{ config: { url }, embedded: {} }, "CONFIG_CONFLICT", /^config\.url names a server, and embedded starts another /],
    [{ url: "postgresql://u:p@ss@h/d" }, "CONFIG_INVALID", /url: expected a host name/],
    [{ url: `${url}\0` }, "CONFIG_INVALID", /^url: expected a URL without the NUL character$/],
    [{ url: `${url}\ud800` }, "CONFIG_INVALID", /^url: expected a URL without a lone surrogate /],
    ...(
      [
        [5n, "5n"],
        [Infinity, "Infinity"],
        [Math.abs, "a function"],
        [new Date(), "a Date"],
        [Promise.resolve(5), "a promise: await it"],
        [null, "null"],
      ] as const
    ).map(([sleep, got]): [StartOptions, string, RegExp] => [
      untyped({ url, config: { "pg_task.sleep": sleep } }),
      "CONFIG_INVALID",
      new RegExp(`^config: pg_task\\.sleep: expected a whole number of ms from 1 to \\d+, got ${got}$`),
    ]),
    [
      untyped({ config: { url: new URL(url) } }),
      "CONFIG_INVALID",
      /^config: url: expected .*, got a URL object: give its href$/,
    ],
  ];
  for (const [options, code, message] of refused) {
    await assert.rejects(begin(options), (error: unknown) => {
      assert.ok(error instanceof PgTaskError, String(error));
      assert.equal(error.code, code, error.message);
      assert.match(error.message, message);
      return true;
    });
  }
});

it("a reload with an invalid configuration is rejected and changes nothing", async () => {
  const own = await createDatabase();
  const pgTask = await begin({ config: { url: own.url, "pg_task.sleep": 100 } });
  await assert.rejects(pgTask.reload({ url: own.url, "pg_task.sleep": 0 }), { code: "CONFIG_INVALID" });
  await pgTask.reload();
  await using tasks = new TaskClient(own.url);
  assert.equal((await tasks.wait(await tasks.add("SELECT 1"))).state, "DONE");
});

it("a url in a file beside an embedded server is refused in the words of the library", async () => {
  const folder = await temporaryFolder();
  const config = join(folder, "shop.json");
  await writeFile(config, JSON.stringify({ url }));
  await assert.rejects(begin({ config, embedded: { data: join(folder, "data") } }), {
    code: "CONFIG_CONFLICT",
    message: `${config}: "url" names a server, and the option embedded starts another one: remove one of the two`,
  });
});

it("a reload with another configuration is refused if it came from a file, or after the end", async () => {
  const file = join(await temporaryFolder(), "pg_task.json");
  await writeFile(file, JSON.stringify({ url }));
  const pgTask = await begin({ config: file });
  await assert.rejects(pgTask.reload({ url }), { code: "CONFIG_CONFLICT" });
  await pgTask.reload();
  await pgTask.stop();
  await assert.rejects(pgTask.reload(), { code: "USAGE" });
});

it("does not start if its signal has been aborted", async () => {
  const reason = new Error("not now");
  await assert.rejects(begin({ url, signal: AbortSignal.abort(reason) }), (error: unknown) => {
    assert.ok(error instanceof PgTaskError);
    assert.deepEqual([error.code, error.cause], ["START_ABORTED", reason]);
    return true;
  });
});

it("rejects with the reason why it was not ready if its signal is aborted during the start", async () => {
  const controller = new AbortController();
  const { logger, lines } = recorder("warn");
  const starting = begin({ url: "postgresql://u@127.0.0.1:1/x", signal: controller.signal, logger });
  const failed = assert.rejects(starting, (error: unknown) => {
    assert.ok(error instanceof PgTaskError);
    assert.equal(error.code, "START_ABORTED");
    assert.match(error.message, /stopped before it was ready: no connection to the server at 127\.0\.0\.1, port 1/);
    return true;
  });
  while (!lines.some(({ msg }) => msg === "control connection failed, retrying")) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  controller.abort();
  await failed;
});

/** Starts a pg-task that runs a task, which ends when the gate is opened. */
async function beginHeld(options: Pick<StartOptions, "signal"> = {}) {
  const own = await createDatabase();
  const open = await closeGate(own, "held");
  const pgTask = await begin({ config: { url: own.url, "pg_task.sleep": 100 }, ...options });
  const client = new TaskClient(own.url);
  const id = await client.add({ input: waitAt("held"), delete: false });
  for await (const { state } of client.changes({ ids: [id] })) if (state === "WORK") break;
  return { pgTask, client, id, open };
}

it("stops when its signal is aborted, and lets running tasks finish", async () => {
  const controller = new AbortController();
  const { pgTask, client, id, open } = await beginHeld({ signal: controller.signal });
  await using tasks = client;
  controller.abort();
  await open();
  assert.equal(await pgTask.stopped, null);
  assert.equal((await tasks.get(id))?.state, "DONE");
});

it("a stop with a grace period of 0 returns running tasks to PLAN", async () => {
  const { pgTask, client, id, open } = await beginHeld();
  await using tasks = client;
  await pgTask.stop({ graceMs: 0 });
  assert.equal((await tasks.get(id))?.state, "PLAN");
  await open();
});

it("a stop with an option that is none stops nothing, and with the longest grace period tasks finish", async () => {
  const { pgTask, client, id, open } = await beginHeld();
  await using tasks = client;
  for (const graceMs of [Infinity, 1e12, 2_147_483_648, -1, Number.NaN, "x", "5", null]) {
    await assert.rejects(pgTask.stop(untyped({ graceMs })), {
      code: "USAGE",
      message: /^expected graceMs to be a number of ms from 0 to 2147483647, got /,
    });
  }
  await assert.rejects(pgTask.stop(untyped({ grace: 500 })), {
    code: "USAGE",
    message: '"grace" is not an option of stop: perhaps "graceMs" is meant',
  });
  assert.equal(pgTask.role, "leader");
  const stopping = pgTask.stop({ graceMs: 2_147_483_647 });
  await open();
  await stopping;
  assert.equal((await tasks.get(id))?.state, "DONE");
});

/** Calls `work` in this folder and with these variables in place of those that name a server. */
async function inSurroundings(cwd: string, env: Readonly<Record<string, string>>, work: () => Promise<void>) {
  const before = { cwd: process.cwd(), env: { ...process.env } };
  for (const name of Object.keys(before.env)) if (/^(?:PG|DATABASE_URL$)/.test(name)) delete process.env[name];
  Object.assign(process.env, env);
  process.chdir(cwd);
  try {
    await work();
  } finally {
    process.chdir(before.cwd);
    for (const name of Object.keys(env)) delete process.env[name];
    Object.assign(process.env, before.env);
  }
}

it("finds its configuration as pg-task start does, and says so if there is none", async () => {
  const missing = { code: "CONFIG_MISSING" };
  await inSurroundings(await temporaryFolder(), {}, async () => {
    for (const config of [{}, [], { "pg_task.sleep": 100 }, [{ data: "shop" }]]) {
      await assert.rejects(begin({ config }), missing, JSON.stringify(config));
    }
    await assert.rejects(start(), missing);
  });
  await inSurroundings(await configFolder({}), {}, async () => {
    const { logger, lines } = recorder();
    const controller = new AbortController();
    const starting = assert.rejects(start({ logger, signal: controller.signal }), { code: "START_ABORTED" });
    const warning = (): Record<string, unknown> | undefined =>
      lines.find(({ msg }) => msg === "no server configured, using libpq's default");
    while (warning() === undefined) await new Promise((resolve) => setImmediate(resolve));
    const remedy = "set url in the file, DATABASE_URL or PG* variables; or give start embedded: true";
    assert.equal(warning()?.["remedy"], remedy);
    controller.abort();
    await starting;
  });
  for (const [folder, env] of [
    [await temporaryFolder(), { DATABASE_URL: url }],
    [await configFolder({ url }), {}],
  ] as const) {
    await inSurroundings(folder, env, async () => {
      const pgTask = await begin({});
      assert.equal(pgTask.url, url);
      await pgTask.stop();
    });
  }
});

it("starts an embedded server, and stops it", async () => {
  const data = join(await temporaryFolder(), "data");
  const pgTask = await begin({ embedded: { data } });
  assert.match(pgTask.url, /^postgresql:\/\/postgres@127\.0\.0\.1:\d+\/postgres$/);
  const tasks = new TaskClient(pgTask.url);
  assert.equal((await tasks.wait(await tasks.add("SELECT 1"))).output, "1");
  await tasks.end();
  await pgTask.stop();
  await using gone = new TaskClient(pgTask.url);
  await assert.rejects(gone.get(1), { code: "CONNECTION_FAILED" });
});
