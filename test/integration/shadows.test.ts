import assert from "node:assert/strict";
import { describe } from "node:test";
import { Command } from "commander";
import { registerCommands } from "../../src/cli/commands/index.js";
import { cli, OnTerminal } from "../support/cli.js";
import { withConnectionTo } from "../support/connectTo.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { createShadows, recordErrors, shadowError } from "../support/shadows.js";
import { token, Web } from "../support/web.js";

const errors = recordErrors();

/** Ids of tasks: one that waits, one with a rule, one with a query as rule, two that wait for the first, and ended ones. */
const [waits, ruled, queried, repeats, follows, done, failed, again, gone] = [
  "1",
  "2",
  "3",
  "4",
  "5",
  "6",
  "7",
  "8",
  "9",
];

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

/** The arguments of each command that connects to a server. Those that change tasks may be refused some. */
const commands: readonly (readonly string[])[] = [
  ["check", "--all"],
  ["status"],
  ["status", "--json"],
  ["list"],
  [
    "list",
    "--state",
    "PLAN",
    "--group",
    "a",
    "--text",
    "select",
    "--since",
    "2020-01-01",
    "--until",
    "infinity",
    "--json",
  ],
  ["list", "--state", "PLAN"],
  ["list", "--key", "waits", "--state", "PLAN"],
  ["list", "--waiting-for", waits, "--before", "100"],
  ["list", "--schedules"],
  [
    "list",
    "--schedules",
    "--group",
    "a",
    "--text",
    "select",
    "--key",
    "ruled",
    "--since",
    "2020-01-01",
    "--until",
    "infinity",
  ],
  ...[waits, ruled, queried, repeats, follows, done, failed, again, gone].flatMap((id) => [
    ["show", id],
    ["why", id],
  ]),
  ["show", waits, "--json", "--full"],
  ["next", "0 5 * * *", "--zone", "Europe/Berlin", "--since", "2030-01-01"],
  ["groups"],
  ["add", "SELECT 1", "--wait"],
  ["add", "SELECT 1", "--in", "1 day", "--group", "a", "--set", "key=added", "--set", "data=x"],
  ["pause", "task"],
  ["resume", "task"],
  ["pause", "task", "--group", "b", "--reason", "x"],
  ["resume", "task", "--group", "b"],
  ["pause", "task", "--schedule", `${ruled},${queried},${repeats}`],
  ["resume", "task", "--schedule", `${ruled},${queried},${repeats}`],
  ["pause", "task", "--key", "ruled"],
  ["resume", "task", "--key", "ruled"],
  ["run-now", repeats],
  ["run-now", "--key", "added"],
  ["retry", failed, again],
  ["retry", "--state", "FAIL", "--group", "b", "--yes"],
  ["stop", waits],
  ["stop", "--key", "queried"],
  ["delete", done],
  ["delete", "--key", "queried", "--yes"],
  ["prune", "--older", "0", "--dry-run"],
  ["prune", "--older", "0", "--yes"],
  ["doctor"],
];

/** Commands that send no statement, and those that have a test of their own. */
const otherCommands = ["init", "completion", "manual", "complete-values", "start", "watch"];

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
  ...["", "/dependencies"].map((more) => [`/tables/{table}/tasks/{id}${more}`, ""] as const),
  ["/tables/{table}/schedules", "", "?group=a&text=select"],
  ["/tables/{table}/next", "?rule=0+5+*+*+*&since=2030-01-01T00:00:00Z"],
  ["/processes", ""],
  ["/tables/{table}/runs", ""],
  ["/tables/{table}/errors", ""],
  ["/tables/{table}/columns", ""],
  ["/tables/{table}/pause", { group: "b", reason: "x" }],
  ["/tables/{table}/resume", { group: "b" }],
  ["/tables/{table}/tasks/{id}/stop", {}],
  ["/tables/{table}/tasks/{id}/retry", {}],
  ["/tables/{table}/tasks/{id}/run-now", {}],
  ["/tables/{table}/tasks/{id}/pause", {}],
  ["/tables/{table}/tasks/{id}/resume", {}],
  ["/tables/{table}/tasks/{id}/delete", {}],
  [
    "/tables/{table}/changes",
    ...["stop", "retry", "run-now", "delete"].map((change) => ({ change, ids: [waits, ruled, failed] })),
  ],
];

const documents: string[] = [];

for (const path of ["public, pg_catalog", '"$user", public']) {
  const pgTask = new PgTask();
  const database = await createDatabase();
  const admin = await database.connect();
  await admin.query(rows);
  await createShadows(admin);
  await admin.query(`ALTER DATABASE ${database.target.database} SET search_path = ${path}`);
  const env = { DATABASE_URL: database.url };
  await pgTask.start({
    url: database.url,
    "pg_task.sleep": 100,
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
    await admin.query(`TRUNCATE public.task, public.task_pause, public.task_after; ${rows}`);
  };

  describe(`with the search_path ${path}, shadows are not used by`, () => {
    test("the manager", async () => {
      assert.deepEqual(
        pgTask.lines.filter((line) => shadowError.test(JSON.stringify(line))),
        [],
      );
    });

    for (const args of commands) {
      test(`pg-task ${args.join(" ")}`, async () => {
        await usesNone(async () => {
          const { code, stdout, stderr } = await cli(args, { env });
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

    test("a session that inserts, changes and deletes a task", async () => {
      await usesNone(() =>
        withConnectionTo(database.url, async (client) => {
          await client.query(`SET search_path = ${path}`);
          await client.query(
            `INSERT INTO public.task (input, rule, retry, backoff, gap, args, "group") VALUES ('SELECT 1', '0 5 * * *', 1, '1 s', '1 s', '{}', 'own')`,
          );
          await client.query("UPDATE public.task SET plan = 'infinity', state = 'STOP'");
          await client.query("DELETE FROM public.task");
        }),
      );
    });
  });
}

test("the lists above have all commands and all paths of the API", async () => {
  const program = new Command();
  await registerCommands(program, undefined, async () => {});
  const names = new Set([...commands.map(([name = ""]) => name), ...otherCommands]);
  assert.deepEqual(program.commands.map((command) => command.name()).toSorted(), [...names].toSorted());
  const { paths } = JSON.parse(documents[0] ?? "{}");
  assert.deepEqual(
    Object.keys(paths).toSorted(),
    ["/events", ...requests.map(([route]) => route)].map((route) => `/api${route}`).toSorted(),
  );
});
