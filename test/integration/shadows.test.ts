import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, describe } from "node:test";
import { Command } from "commander";
import { Pool } from "pg";
import { registerCommands } from "../../src/cli/main.js";
import { TaskClient } from "../../src/library/taskClient.js";
import { bulkSchema } from "../../src/web/api/bulkRoutes.js";
import { cli, OnTerminal } from "../support/cli.js";
import { withConnectionTo } from "../support/connectTo.js";
import { createDatabase, onServer } from "../support/database.js";
import { endPool } from "../support/endPool.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { createShadows, recordErrors, shadowError } from "../support/shadows.js";
import { temporaryFolder } from "../support/temporaryFolder.js";
import { poll, token, Web } from "../support/web.js";

const errors = recordErrors();

/** Ids of tasks: those that wait, among them one for another, and those that have ended. */
const { waits, ruled, queried, repeats, follows } = {
  waits: "1",
  ruled: "2",
  queried: "3",
  repeats: "4",
  follows: "5",
};
const { done, failed, again, gone } = { done: "6", failed: "7", again: "8", gone: "9" };

const rows = `
  INSERT INTO public.task (id, input, "group", key, plan, rule, repeat, after, state, start, stop, output, error, remote, retry) VALUES
    (${waits}, 'SELECT 1', 'a', 'waits', 'infinity', NULL, '0', NULL, 'PLAN', NULL, NULL, NULL, NULL, 'host=127.0.0.1 password=secret', 2),
    (${ruled}, 'SELECT 1', 'a', 'ruled', now() + interval '1 day', '0 5 * * *', '0', NULL, 'PLAN', NULL, NULL, NULL, NULL, NULL, 2),
    (${queried}, 'SELECT 1', 'a', 'queried', now() + interval '1 day', 'SELECT ''infinity''::pg_catalog.timestamptz', '0', NULL, 'PLAN', NULL, NULL, NULL, NULL, NULL, NULL),
    (${repeats}, 'SELECT 1', 'b', NULL, now() + interval '1 day', NULL, '1 day', NULL, 'PLAN', NULL, NULL, NULL, NULL, NULL, NULL),
    (${follows}, 'SELECT 1', 'b', NULL, now(), NULL, '0', '{${waits}}', 'PLAN', NULL, NULL, NULL, NULL, NULL, NULL),
    (${done}, 'SELECT 1', 'b', 'waits', now(), NULL, '0', NULL, 'DONE', now(), now(), '1', NULL, NULL, NULL),
    (${failed}, 'SELECT 1/0', 'b', NULL, now(), NULL, '0', NULL, 'FAIL', now(), now(), NULL, 'ERROR:  division by zero', NULL, NULL),
    (${again}, 'SELECT 1', 'b', NULL, now(), NULL, '1 day', NULL, 'FAIL', now(), now(), NULL, 'ERROR:  x', NULL, 1),
    (${gone}, 'SELECT 1', 'b', NULL, now(), NULL, '0', '{${waits}}', 'GONE', now(), now(), NULL, 'ERROR:  x', NULL, NULL);
  SELECT setval('public.task_id_seq', 100);
  INSERT INTO public.task_pause ("group", reason) VALUES ('paused', 'because')`;

const jobsFile = join(await temporaryFolder(), "jobs.json");
await writeFile(
  jobsFile,
  JSON.stringify({
    prefix: "job ",
    jobs: { 1: { rule: "0 5 * * *", input: "SELECT 1" }, 2: { repeat: "1 h", input: "SELECT 2", paused: true } },
  }),
);

/** The commands that connect to a server. Those that change tasks may be refused some. */
const commands: readonly string[] = [
  "check --all",
  "status",
  "status --json",
  "list",
  "list --state PLAN --group a --text select --since 2020-01-01 --until infinity --json",
  "list --state PLAN",
  "list --key waits --state PLAN",
  `list --waiting-for ${waits} --before 100`,
  "list --schedules",
  "list --schedules --group a --text select --key ruled --since 2020-01-01 --until infinity",
  ...[waits, ruled, queried, repeats, follows, done, failed, again, gone].flatMap((id) => [`show ${id}`, `why ${id}`]),
  `show ${waits} --json --full`,
  "next @daily --zone Europe/Berlin --since 2030-01-01",
  "groups",
  "add SELECT --wait",
  `wait ${done}`,
  "add SELECT --in 1d --group a --set key=added --set data=x",
  `apply ${jobsFile} --prune --yes`,
  "pause task",
  "resume task",
  "pause task --group b --reason x",
  "resume task --group b",
  `pause task --schedule ${ruled},${queried},${repeats}`,
  `resume task --schedule ${ruled},${queried},${repeats}`,
  "pause task --key ruled",
  "resume task --key ruled",
  `run-now ${repeats}`,
  "run-now --key added",
  `retry ${failed} ${again}`,
  "retry --state FAIL --group b --yes",
  `stop ${waits}`,
  "stop --key queried",
  `delete ${done}`,
  "delete --key queried --yes",
  "facade cron",
  "accept-copy",
  "prune --older 0 --dry-run",
  "prune --older 0 --yes",
  "doctor",
];

/** Commands that send no statement, and those that have a test of their own. */
const otherCommands = [
  "init",
  "completion",
  "manual",
  "complete-values",
  "start",
  "watch",
  "import",
  "release",
  "serve",
];

const changesOfMany = ["stop", "retry", "run-now", "delete"].map((change) => ({ change, ids: [waits, ruled, failed] }));

/** The paths of the API with queries and bodies. */
const requests: readonly (readonly [path: string, ...variants: (string | object)[]])[] = [
  ["/tables", ""],
  ["/tables/{table}", ""],
  ["/tables/{table}/history", ""],
  ["/tables/{table}/groups", ""],
  [
    "/tables/{table}/tasks",
    "",
    "?state=PLAN",
    "?state=PLAN&key=waits",
    "?group=a&text=select&limit=1",
    `?waitingFor=${waits}`,
    { input: "SELECT 1", delay: "1 day", key: "api", copy: { id: waits, columns: ["data"] } },
  ],
  ["/tables/{table}/tasks/check", { input: "SELECT 1", rule: "0 5 * * *", key: "api", after: [waits] }],
  ...["", "/dependencies"].map((more) => [`/tables/{table}/tasks/{id}${more}`, ""] as const),
  ["/tables/{table}/schedules", "", "?group=a&text=select"],
  ["/tables/{table}/next", "?rule=0+5+*+*+*&since=2030-01-01T00:00:00Z"],
  ["/processes", ""],
  ["/tables/{table}/runs", ""],
  ["/tables/{table}/matches", "?state=PLAN&group=a&text=select"],
  ["/tables/{table}/errors", ""],
  ["/tables/{table}/columns", ""],
  ["/tables/{table}/pause", { group: "b", reason: "x" }],
  ["/tables/{table}/resume", { group: "b" }],
  ["/tables/{table}/tasks/{id}/stop", {}],
  ["/tables/{table}/tasks/{id}/retry", {}],
  ["/tables/{table}/tasks/{id}/retry-without-waiting", {}],
  ["/tables/{table}/tasks/{id}/run-now", {}],
  ["/tables/{table}/tasks/{id}/run-without-waiting", {}],
  ["/tables/{table}/tasks/{id}/end-blocker", { pid: 1, started: "2020-01-01T00:00:00Z", how: "cancel" }],
  ["/tables/{table}/tasks/{id}/pause", {}],
  ["/tables/{table}/tasks/{id}/resume", {}],
  ["/tables/{table}/tasks/{id}/delete", {}],
  ...["", "/check"].map((more) => [`/tables/{table}/changes${more}`, ...changesOfMany] as const),
];

const bulkChanges = ["stop", "retry", "run-now", "delete"].map((change) => ({
  change,
  filter: change === "retry" ? { state: "FAIL", group: "a" } : { group: "a", text: "select" },
}));
const bulkRoutes = ["", "/{bulk}", "/{bulk}/start", "/{bulk}/stop"].map((route) => `/tables/{table}/bulk${route}`);

/** One call of each method of the library. `end` sends no statement. */
const calls: Readonly<
  Record<Exclude<keyof TaskClient, "end" | typeof Symbol.asyncDispose>, (client: TaskClient) => Promise<unknown>>
> = {
  add: async (client) => {
    await client.add({ input: "SELECT 1", delay: "1 day", group: "a", key: "library", args: { a: 1 }, after: [waits] });
    await client.add({ input: "SELECT 1", key: "library" }, { ifKeyTaken: "join" });
    await client.add({ input: "SELECT 1", key: "library" }, { ifKeyTaken: "skip" });
    await assert.rejects(client.add({ input: "SELECT 1", key: "library" }), /task \d+ waits with the key/);
  },
  addMany: (client) => client.addMany(["SELECT 1", { input: "SELECT 2", plan: "infinity" }]),
  get: (client) => client.get(waits),
  wait: (client) => client.wait(done),
  list: async (client) => {
    const all = [
      {},
      { states: ["PLAN"] as const },
      { states: ["PLAN"] as const, key: "waits" },
      { waitingFor: waits, before: 100 },
    ];
    for (const options of [...all, { group: "a", text: "select", since: "2020-01-01", until: "infinity" }])
      for await (const task of client.list(options)) assert.ok(task.id);
  },
  changes: async (client) => {
    for await (const change of client.changes({ ids: [done] })) assert.equal(change.state, "DONE");
    const ending = new AbortController();
    const changes = client.changes({ group: "changes", text: "select", signal: ending.signal });
    const first = changes.next().then(() => ending.abort());
    // Tasks that are added before the first look at the table are no changes.
    while (!ending.signal.aborted) await client.add({ input: "SELECT 1", plan: "infinity", group: "changes" });
    await first;
  },
  retry: async (client) => [await client.retry([failed, again, waits]), await client.retry(gone, { states: ["GONE"] })],
  stop: (client) => client.stop([waits, ruled]),
  delete: async (client) => [await client.delete(done), await client.delete(queried, { running: true })],
};

/** Calls of the functions of a table, in an order in which all succeed. */
const functionCalls: readonly string[] = [
  "SELECT public.task_schedule('sql', '0 3 1 1 *', 'SELECT 1')",
  "SELECT public.task_schedule('sql', 'FREQ=DAILY', 'SELECT 1', 'UTC', '{\"timeout\": \"5 s\"}')",
  "SELECT public.task_schedule('sql', '1 day', 'SELECT 1')",
  "SELECT public.task_schedule('sql', '1 day', 'SELECT 1')",
  ...["pause", "pause", "resume", "resume", "run"].map((name) => `SELECT public.task_${name}('sql')`),
  "SELECT public.task_unschedule('sql')",
  `SELECT public.task_signal('waits', '{}')`,
  `SELECT public.task_stop(${repeats})`,
  `SELECT public.task_retry(${repeats})`,
  `CALL public.task_wait(${done})`,
  `CALL public.task_wait(${ruled}, 0.1)`,
  `SELECT public.task_chain('[{"input": "SELECT 1"}]', 'SELECT 2', 'chain', 'group')`,
  "SELECT public.task_chain('{SELECT 1,SELECT 2}')",
  "SELECT public.task_chain(ARRAY['SELECT 1'])",
];

const documents: string[] = [];

for (const path of ["public, pg_catalog", '"$user", public']) {
  const pgTask = new PgTask();
  const database = await createDatabase();
  const admin = await database.connect();
  await admin.query(rows);
  await createShadows(admin);
  await admin.query(`ALTER DATABASE ${database.target.database} SET search_path = ${path}`);
  const role = `caller_${database.target.database}`;
  after(() => onServer((client) => client.query(`DROP ROLE ${role}`)));
  await admin.query(
    `CREATE ROLE ${role} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO ${role}; GRANT ALL ON SEQUENCE public.task_id_seq TO ${role}`,
  );
  const callerUrl = new URL(database.url);
  callerUrl.username = role;
  const env = { DATABASE_URL: database.url };
  await pgTask.start({
    url: database.url,
    "pg_task.sleep": 100,
    "pg_conf.log": "debug",
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
  });
  const web = await Web.connect(pgTask);
  const table = await web.tableId();
  documents.push((await web.request("/api/openapi.json")).text);

  /** Asserts that `work` does not use a shadow, and succeeds. */
  const usesNone = async (work: () => Promise<unknown>): Promise<void> => {
    const from = errors.length;
    let failure: unknown = null;
    await work().catch((error: unknown) => (failure = error));
    assert.deepEqual(
      errors.slice(from).filter((message) => shadowError.test(message)),
      [],
    );
    assert.equal(failure, null);
  };

  /** Restores the rows. */
  const reset = async (): Promise<void> => {
    // One by one, because the manager's statements lock several of them, in another order.
    for (const name of ["task_after", "task_pause", "task"]) await admin.query(`TRUNCATE public.${name}`);
    await admin.query(rows);
  };

  describe(`with the search_path ${path}, shadows are not used by`, () => {
    for (const command of commands) {
      test(`pg-task ${command}`, async () => {
        await usesNone(async () => {
          const { code, stdout, stderr } = await cli(command.split(" "), { env });
          const text = stdout + stderr;
          assert.ok((code === 0 || code === 1) && !shadowError.test(text), `${code} ${text}`);
        });
      });
    }

    test("pg-task watch", async () => {
      await usesNone(async () => {
        const program = new OnTerminal(["watch"], { env: { ...env, NO_COLOR: "1" } });
        await program.until("q quits");
        program.type("q");
        assert.equal(await program.end(), 0);
      });
    });

    for (const [route, ...variants] of requests) {
      for (const variant of variants) {
        const isRead = typeof variant === "string";
        test(`${isRead ? "GET" : "POST"} ${route} ${isRead ? variant : JSON.stringify(variant)}`, async () => {
          if (!isRead) await reset();
          await usesNone(async () => {
            const at = `/api${route.replace("{table}", table).replace("{id}", ruled)}`;
            const { status, text } = isRead
              ? await web.request(`${at}${variant}`)
              : await web.request(at, { method: "POST", json: variant });
            assert.ok((status < 300 || status === 409) && !shadowError.test(text), `${status} ${text}`);
          });
        });
      }
    }

    for (const body of bulkChanges) {
      test(`POST /bulk ${JSON.stringify(body)}`, async () => {
        await reset();
        await usesNone(async () => {
          const bulk = `/api/tables/${table}/bulk`;
          const { id } = bulkSchema.parse((await web.post(bulk, { ...body, start: true })).value);
          const ended = await poll(
            () => web.get(bulkSchema, `${bulk}/${id}`),
            ({ phase }) => ["done", "failed"].includes(phase),
          );
          assert.equal(ended.error, null);
        });
      });
    }

    test("the functions", async () => {
      await reset();
      const session = await database.connect();
      for (const call of functionCalls) await usesNone(() => session.query(call));
    });

    test("GET /events", async () => {
      await usesNone(async () => {
        const events = await web.events();
        await events.until(/^event: /m);
        events.end();
      });
    });

    test("GET /metrics", async () => {
      await usesNone(async () => {
        const { text } = await web.request("/metrics");
        assert.match(text, /^pg_task_/m);
        assert.doesNotMatch(text, shadowError);
      });
    });

    for (const [name, call] of Object.entries(calls)) {
      test(`TaskClient.${name}`, async () => {
        await reset();
        const pool = new Pool({ connectionString: callerUrl.href });
        await usesNone(() => call(new TaskClient(pool)));
        await endPool(pool);
      });
    }

    for (const view of ["stats", "errors", "groups", "schedules"]) {
      test(`the view task_${view}`, async () => {
        await usesNone(() =>
          withConnectionTo(callerUrl.href, async (client) => {
            await client.query(`SET search_path = ${path}`);
            await client.query(`TABLE public.task_${view}`);
          }),
        );
      });
    }

    test("a session that inserts, changes and deletes a task", async () => {
      await usesNone(() =>
        withConnectionTo(callerUrl.href, async (client) => {
          await client.query(`SET search_path = ${path}`);
          await client.query(
            `INSERT INTO public.task (input, rule, retry, backoff, gap, args, "group") VALUES ('SELECT 1', '0 5 * * *', 1, '1 s', '1 s', '{}', 'own')`,
          );
          await client.query("SET pg_task.plan = 'now() + interval ''1 day'''");
          await client.query("INSERT INTO public.task (input) VALUES ('SELECT 1')");
          await client.query("UPDATE public.task SET plan = 'infinity', state = 'STOP'");
          await client.query("DELETE FROM public.task");
        }),
      );
    });

    test("the manager and the sessions", async () => {
      const { code, stderr } = await cli(["add", "SELECT", "--wait", "--set", `remote=${database.url}`], { env });
      assert.equal(code, 0, stderr);
      assert.deepEqual(
        pgTask.lines.filter((line) => shadowError.test(JSON.stringify(line))),
        [],
      );
    });
  });
}

test("the lists above have all commands and all paths of the API", async () => {
  const program = new Command();
  registerCommands(program, async () => {});
  const names = new Set([...commands.map((command) => command.split(" ")[0] ?? ""), ...otherCommands]);
  assert.deepEqual(program.commands.map((command) => command.name()).toSorted(), [...names].toSorted());
  const { paths } = JSON.parse(documents[0] ?? "{}");
  assert.deepEqual(
    Object.keys(paths).toSorted(),
    ["/events", ...bulkRoutes, ...requests.map(([route]) => route)].map((route) => `/api${route}`).toSorted(),
  );
});
