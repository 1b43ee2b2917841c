import assert from "node:assert/strict";
import { beforeEach, describe } from "node:test";
import {
  compareJobs,
  moveJobs,
  returnJobs,
  type Destination,
  type MappedJob,
} from "../../../../src/cli/import/moveJobs.js";
import { readPgCron } from "../../../../src/cli/import/pgCron.js";
import type { Source } from "../../../../src/cli/import/source.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { backendPid, type Client } from "../../../../src/shared/postgres/client.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { cronTables } from "../../../support/schedulerTables.js";
import { Tasks } from "../../../support/tasks.js";

const table = taskTable("public", "task");
/** The database of the task table, in which pg_cron can be, too. */
const here = await createDatabase();
/** Another database with pg_cron. */
const there = await createDatabase("empty");
const client = await here.connect();
const other = await there.connect();
const tasks = await Tasks.create(client);
for (const each of [client, other]) await each.query(cronTables);

const jobs = `INSERT INTO cron.job (jobid, jobname, schedule, command, active) VALUES
  (1, 'nightly', '0 3 * * *', 'VACUUM', true), (2, NULL, '* * * * *', 'SELECT 2', true), (3, 'off', '0 4 * * *', 'SELECT 3', false)`;

beforeEach(async () => {
  await client.query("TRUNCATE task RESTART IDENTITY");
  for (const each of [client, other]) await each.query(`TRUNCATE cron.job; ${jobs}`);
});

/** Does not wait for the middle of a minute, because no worker of pg_cron looks at these tables. */
async function read(from: Client): Promise<Source> {
  return { ...(await readPgCron(from)), awaitMoment: () => Promise.resolve() };
}

const mapped = ({ jobs: all }: Source): MappedJob[] => all.filter((job): job is MappedJob => job.define !== null);

async function move(from: Client, to: Destination, source?: Source): Promise<string[]> {
  const found = source ?? (await read(from));
  return (await moveJobs(to, found, mapped(found))).map(({ key, outcome }) => `${key} ${outcome}`);
}

async function goBack(from: Client, to: Destination, source?: Source): Promise<string[]> {
  const found = source ?? (await read(from));
  return (await returnJobs(to, found, found.jobs, { prefix: "pg_cron ", dryRun: false })).map(
    ({ key, outcome }) => `${key} ${outcome}`,
  );
}

const activeIn = async (from: Client): Promise<string[]> =>
  (await from.query<{ id: string }>("SELECT jobid::text AS id FROM cron.job WHERE active ORDER BY jobid")).rows.map(
    ({ id }) => id,
  );

const rows = () =>
  tasks.rows<Record<string, unknown>>(
    "SELECT key, state::text, data, plan = 'infinity' AS paused FROM task ORDER BY id",
  );

const waiting = (key: string, paused: boolean, data: string | null = null) => ({ key, state: "PLAN", data, paused });
const moved = [waiting("pg_cron 1", false), waiting("pg_cron 2", false), waiting("pg_cron 3", true)];

const copiedRuns = () =>
  tasks.rows(
    `SELECT coalesce(output, error) AS message, state::text, pid, start::text, stop - start AS took FROM task WHERE key = 'pg_cron 2' AND start IS NOT NULL ORDER BY id`,
  );

const copiedRun = (minute: number, state = "DONE") => ({
  message: `run ${minute}`,
  state,
  pid: 7,
  start: `2026-01-01 00:0${minute}:00+00`,
  took: { seconds: 1 },
});

for (const [title, from, isShared] of [
  ["within one database", client, true],
  ["between two databases", other, false],
] as const) {
  const to = { client, table, isShared, runs: 2 };
  describe(`moving jobs ${title}`, () => {
    test("adds them, switches them off, and starts those that ran; a second time changes nothing", async () => {
      assert.deepEqual(await move(from, to), ["pg_cron 1 added", "pg_cron 2 added", "pg_cron 3 added"]);
      assert.deepEqual([await rows(), await activeIn(from)], [moved, []]);
      assert.ok(await tasks.value("SELECT plan = task_next(rule, zone) FROM task WHERE key = 'pg_cron 1'"));
      assert.deepEqual(await move(from, to), ["pg_cron 1 same", "pg_cron 2 same", "pg_cron 3 same"]);
      assert.deepEqual([await rows(), await activeIn(from)], [moved, []]);
    });

    test("takes over a change of the source, and a job that is switched on there again", async () => {
      await move(from, to);
      await from.query("UPDATE cron.job SET schedule = '5 3 * * *', active = jobid = 3 WHERE jobid <> 2");
      assert.deepEqual(await move(from, to), ["pg_cron 1 changed", "pg_cron 2 same", "pg_cron 3 changed"]);
      assert.deepEqual([(await rows()).map(({ paused }) => paused), await activeIn(from)], [[false, false, false], []]);
      assert.equal(
        await tasks.value("SELECT string_agg(rule, ', ' ORDER BY id) FROM task"),
        "5 3 * * *, * * * * *, 5 3 * * *",
      );
    });

    test("switches a job off that runs on both sides, and leaves the one here as it is", async () => {
      await move(from, to);
      const before = await tasks.rows("SELECT key, plan FROM task ORDER BY key");
      await from.query("UPDATE cron.job SET active = true WHERE jobid <> 3");
      await move(from, to);
      assert.deepEqual(await activeIn(from), []);
      assert.deepEqual(await tasks.rows("SELECT key, plan FROM task ORDER BY key"), before);
    });

    test("leaves a job paused that is deleted there in the meantime", async () => {
      const source = await read(from);
      await from.query("DELETE FROM cron.job WHERE jobid = 1");
      await move(from, to, source);
      assert.deepEqual(
        (await rows()).map(({ paused }) => paused),
        [true, false, true],
      );
      assert.deepEqual(await activeIn(from), []);
    });

    test("copies the last runs of each job once, also those after it was brought back", async () => {
      const runs = (...minutes: number[]) =>
        from.query(`INSERT INTO cron.job_run_details (jobid, job_pid, command, status, return_message, start_time, end_time) SELECT
        2, 7, 'SELECT 2', CASE m WHEN 3 THEN 'failed' ELSE 'succeeded' END, 'run ' || m, '2026-01-01 00:00+00'::timestamptz + m * interval '1 minute', '2026-01-01 00:00:01+00'::timestamptz + m * interval '1 minute'
        FROM unnest('{${minutes.join(",")}}'::int[]) AS m`);
      await from.query("TRUNCATE cron.job_run_details");
      await runs(1, 2, 3);
      await move(from, to);
      assert.deepEqual(JSON.parse(JSON.stringify(await copiedRuns())), [copiedRun(2), copiedRun(3, "FAIL")]);
      await move(from, to);
      await goBack(from, to);
      await runs(4);
      await move(from, to);
      assert.deepEqual(JSON.parse(JSON.stringify(await copiedRuns())), [
        copiedRun(2),
        copiedRun(3, "FAIL"),
        copiedRun(4),
      ]);
      await from.query("TRUNCATE cron.job_run_details");
    });

    test("only compares without a change", async () => {
      const source = await read(from);
      const results = await compareJobs(to, mapped(source));
      assert.deepEqual(
        results.map(({ outcome }) => outcome),
        ["added", "added", "added"],
      );
      assert.deepEqual([await rows(), await activeIn(from)], [[], ["1", "2"]]);
    });

    test("leaves a job there that the table refuses", async () => {
      await from.query("UPDATE cron.job SET schedule = '0 0 31 2 *' WHERE jobid = 1");
      assert.deepEqual(await move(from, to), ["pg_cron 1 refused", "pg_cron 2 added", "pg_cron 3 added"]);
      assert.deepEqual(await activeIn(from), ["1"]);
    });

    test("brings them back, and does not switch on what was paused here", async () => {
      await move(from, to);
      await client.query("UPDATE task SET plan = 'infinity' WHERE key = 'pg_cron 2'");
      assert.deepEqual(await goBack(from, to), [
        "pg_cron 1 runs there",
        "pg_cron 2 paused there",
        "pg_cron 3 paused there",
      ]);
      assert.deepEqual(await activeIn(from), ["1"]);
      assert.ok((await rows()).every(({ state, data }) => state === "STOP" && data === null));
      // And again to here.
      assert.deepEqual(await move(from, to), ["pg_cron 1 added", "pg_cron 2 added", "pg_cron 3 added"]);
      assert.deepEqual(await activeIn(from), []);
    });

    test("keeps a job here that is not there any more, and lets a run that is going on end", async () => {
      await move(from, to);
      await from.query("DELETE FROM cron.job WHERE jobid = 1");
      await client.query(
        "SET pgtask.manager = on; UPDATE task SET state = 'WORK', owner = 'x', take = now(), ready = NULL, plan = now() WHERE key = 'pg_cron 2'; RESET pgtask.manager",
      );
      assert.deepEqual(await goBack(from, to), [
        "pg_cron 1 unknown there",
        "pg_cron 2 runs there",
        "pg_cron 3 paused there",
      ]);
      assert.deepEqual(await tasks.rows("SELECT key, state::text, rule IS NOT NULL AS repeats FROM task ORDER BY id"), [
        { key: "pg_cron 1", state: "PLAN", repeats: true },
        { key: "pg_cron 2", state: "WORK", repeats: false },
        { key: "pg_cron 3", state: "STOP", repeats: true },
      ]);
    });

    test("changes nothing there if the move fails here", async () => {
      const source = await read(from);
      const failing: Source = {
        ...source,
        switchJobs: (change, settle) =>
          source.switchJobs(change, async (since) => {
            await settle(since);
            throw new Error("it dies here");
          }),
      };
      await assert.rejects(move(from, to, failing), /it dies here/);
      assert.deepEqual(await activeIn(from), ["1", "2"]);
      assert.ok(
        (await rows()).every(({ paused }) => paused),
        "nothing runs on both sides",
      );
      await move(from, to);
      assert.deepEqual([await rows(), await activeIn(from)], [moved, []]);
    });
  });
}

const elsewhere = async (): Promise<Destination> => ({ client: await here.connect(), table, isShared: false, runs: 0 });

const kill = async (victim: Client): Promise<void> => {
  victim.on("error", () => {});
  await client.query("SELECT pg_terminate_backend($1)", [backendPid(victim)]);
};

describe("a move between two databases that dies", () => {
  test("before anything is switched off", async () => {
    const source = await read(other);
    const destination = await elsewhere();
    const dying: Source = { ...source, switchJobs: () => Promise.reject(new Error("it dies here")) };
    await assert.rejects(move(other, destination, dying), /it dies here/);
    assert.deepEqual(await activeIn(other), ["1", "2"]);
    assert.deepEqual(
      (await rows()).map(({ paused }) => paused),
      [true, true, true],
    );
    assert.deepEqual(await move(other, await elsewhere()), ["pg_cron 1 same", "pg_cron 2 same", "pg_cron 3 same"]);
    assert.deepEqual([await rows(), await activeIn(other)], [moved, []]);
  });

  test("after the jobs are switched off: the next one starts them, from that time on", async () => {
    const source = await read(other);
    const destination = await elsewhere();
    const dying: Source = {
      ...source,
      switchJobs: async (change, settle) => {
        await source.switchJobs(change, settle);
        await kill(destination.client);
      },
    };
    await assert.rejects(move(other, destination, dying));
    assert.deepEqual(await activeIn(other), []);
    const [first, ...others] = await rows();
    assert.match(String(first?.["data"]), /^pg-task import: off there since \d{4}-/);
    assert.ok([first, ...others].every((row) => row?.["paused"]));
    const since = String(first?.["data"]).replace(/^.* since /, "");
    assert.deepEqual(await move(other, await elsewhere()), ["pg_cron 1 same", "pg_cron 2 same", "pg_cron 3 same"]);
    assert.deepEqual(await rows(), moved);
    // A minute that has passed meanwhile is due now, and not lost.
    assert.ok(await tasks.value("SELECT plan = task_next(rule, zone, $1) FROM task WHERE key = 'pg_cron 2'", [since]));
  });

  test("while they are brought back: the next one switches them on", async () => {
    await move(other, await elsewhere());
    const from = await there.connect();
    const source = await read(from);
    const dying: Source = {
      ...source,
      switchJobs: (change, settle) =>
        source.switchJobs(change, async (since) => {
          await settle(since);
          await kill(from);
        }),
    };
    await assert.rejects(goBack(from, await elsewhere(), dying));
    assert.deepEqual(await activeIn(other), []);
    assert.deepEqual(
      (await rows()).map(({ state }) => state),
      ["STOP", "STOP", "STOP"],
    );
    assert.deepEqual(await goBack(other, await elsewhere()), ["pg_cron 1 runs there", "pg_cron 2 runs there"]);
    assert.deepEqual(await activeIn(other), ["1", "2"]);
    assert.ok((await rows()).every(({ data }) => data === null));
    assert.deepEqual(await goBack(other, await elsewhere()), []);
  });
});
