import assert from "node:assert/strict";
import { cli } from "../support/cli.js";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { projectText } from "../support/project.js";
import { cronTables } from "../support/schedulerTables.js";
import { only, statesOf } from "../support/tasks.js";

const page = projectText("docs/coming-from.md");
const blocks = [...page.matchAll(/^```(?:text|sql)\n(.*?)^```$/gms)].map(([, text = ""]) => text);
/** Returns the block of the page that begins with this text. */
const block = (begin: string): string => only(blocks.filter((text) => text.startsWith(begin)));
/** The query that shows the runs in pg_cron together with those made here. */
const history = block("SELECT 'pg_cron '");

const { database, client, tasks } = await serve({}, cronTables);

test("the query of docs/coming-from.md shows the runs in pg_cron together with those made here", async () => {
  await client.query(
    "INSERT INTO cron.job_run_details (jobid, status, return_message, start_time) VALUES (1, 'succeeded', '1 row', '2026-01-01'), (1, 'failed', 'x', '2026-01-02')",
  );
  await tasks.run("SELECT 1", { key: "pg_cron 1" });
  const runs = await tasks.rows<Record<string, unknown>>(history);
  assert.deepEqual(
    runs.map(({ key, status, return_message: message }) => [key, status, message]),
    [
      ["pg_cron 1", "succeeded", "1 row"],
      ["pg_cron 1", "failed", "x"],
      ["pg_cron 1", "DONE", "1"],
    ],
  );
});

const env = { DATABASE_URL: database.url };

const run = async (...args: string[]): Promise<void> => assert.equal((await cli(args, { env })).code, 0);

test("a pause of the schedule skips times that pass, and a pause of its group delays one", async () => {
  const insert = (key: string, plan: string): Promise<string> =>
    tasks.add("SELECT 1", { key, group: key, repeat: "1 day", plan, delete: false });
  const [passed, old] = await tasks.value<[string, string]>(
    "SELECT ARRAY[(now() - interval '10 minutes')::text, (now() - interval '2 hours')::text]",
  );
  const skips = await insert("skips", "2199-01-01 00:00Z");
  await run("pause", "--key", "skips");
  // As the manager, a session can let the time pass.
  await client.query("SET pgtask.manager = on");
  await client.query("UPDATE task SET due = $1 WHERE id = $2", [passed, skips]);
  await client.query("RESET pgtask.manager");
  await run("resume", "--key", "skips");
  assert.ok(await tasks.holds(skips, `state = 'PLAN' AND plan = timestamptz '${passed}' + interval '1 day'`));
  for (const group of ["late", "too late"]) await run("pause", "--group", group);
  const late = await insert("late", passed);
  const tooLate = await insert("too late", old);
  for (const group of ["late", "too late"]) await run("resume", "--group", group);
  assert.deepEqual(statesOf(await tasks.ended(late, tooLate)), ["DONE", "GONE"]);
});
