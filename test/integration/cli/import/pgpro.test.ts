import assert from "node:assert/strict";
import { describe } from "node:test";
import { importing } from "../../../support/importLines.js";
import { test } from "../../../support/limitedTest.js";
import { pgproTables } from "../../../support/schedulerTables.js";

// pgpro_scheduler is a part of Postgres Pro, so its table is written from its documentation, and it was not tried.
const { client, tasks, run, lines, rows, user } = await importing("pgpro", pgproTables, "schedule.cron");

async function addJob(
  rule: object | null,
  columns: Readonly<Record<string, string | number | boolean | string[]>> = {},
) {
  const given = { do_sql: ["SELECT 1"], owner: user, rule: rule === null ? null : JSON.stringify(rule), ...columns };
  const names = Object.keys(given);
  await client.query(
    `INSERT INTO schedule.cron (${names.join(", ")}) VALUES (${names.map((_, index) => `$${index + 1}`).join(", ")})`,
    Object.values(given),
  );
}

describe("pg-task import pgpro", () => {
  test("takes over schedules", async () => {
    await addJob({ minutes: [0, 30], hours: [3], wdays: [1, 5] });
    await addJob({ minutes: [0], hours: [3], days: [13], wdays: [5] });
    await addJob({ dates: ["2999-01-02 03:04:00+00", "2998-01-02 03:04:00+00"] });
    await addJob(
      { minutes: [0], hours: [3] },
      { start_date: "2590-01-01 00:00:30+00", end_date: "2599-01-01 00:00:00+00" },
    );
    await addJob(null, { next_time_statement: "SELECT now() + interval '1 day'" });
    const skipped = "a time that the clocks skip is left out";
    assert.deepEqual(await lines("--apply"), [
      "pgpro 1: same",
      `pgpro 2: differs: day and weekday both have to fit here; ${skipped}`,
      "pgpro 3: same",
      `pgpro 4: differs: ${skipped}`,
      "pgpro 5: same",
    ]);
    assert.deepEqual(
      (await rows("rule")).map(({ rule }) => rule),
      [
        "0,30 3 * * 1,5",
        "DTSTART:20000101T000000\nRRULE:FREQ=DAILY;BYMONTHDAY=13;BYDAY=FR;BYHOUR=3;BYMINUTE=0;BYSECOND=0",
        "DTSTART:29980102T030400\nRDATE:29980102T030400,29990102T030400",
        "DTSTART:25900101T000000\nRRULE:FREQ=DAILY;BYHOUR=3;BYMINUTE=0;BYSECOND=0;UNTIL=25990101T000000Z",
        "SELECT now() + interval '1 day'",
      ],
    );
    assert.equal(await tasks.value("SELECT plan::text FROM task WHERE key = 'pgpro 4'"), "2590-01-01 03:00:00+00");
    assert.equal(await tasks.value("SELECT count(*)::int FROM schedule.cron WHERE active"), 0);
    await run("import", "pgpro", "--back");
    assert.equal(await tasks.value("SELECT count(*)::int FROM schedule.cron WHERE active"), 5);
  });

  test("takes over commands and limits", async () => {
    const daily = { minutes: [0], hours: [3] };
    await addJob(daily, {
      do_sql: ["SELECT 1;", "SELECT 2"],
      same_transaction: true,
      name: "both",
      max_run_time: "1 minute",
      postpone: "2 hours",
      retry: 3,
      max_instances: 2,
    });
    await addJob(daily, {
      do_sql: ["SELECT 1", "SELECT 2"],
      onrollback_statement: "SELECT 0",
      max_run_time: "1 minute",
      retry: 1,
    });
    assert.deepEqual(await lines("--apply"), [
      "pgpro 1: same",
      "pgpro 2: differs: its time limit is that of each step here; it is not tried again here",
    ]);
    const [one, two] = await rows('input, "group", timeout::text, active::text, retry, overlap, max');
    assert.deepEqual(one, {
      input: "SELECT 1;\nSELECT 2",
      group: "pgpro 1 both",
      timeout: "00:01:00",
      active: "02:00:00",
      retry: 3,
      overlap: true,
      max: 1,
    });
    assert.equal(
      two?.["input"],
      `SELECT "public"."task_chain"('[{"input":"SELECT 1","timeout":"00:01:00"},{"input":"SELECT 2","timeout":"00:01:00"}]'::pg_catalog.jsonb, fail => 'SELECT 0', key => 'pgpro 2 step', "group" => 'pgpro 2 steps')`,
    );
  });

  test("does not take over what has no form here, and pauses what is broken", async () => {
    const daily = { minutes: [0], hours: [3] };
    await addJob(daily, { node: "other" });
    await addJob({ onstart: 1 });
    await addJob(daily, { do_sql: [] });
    await addJob(null);
    await addJob(daily, { executor: "alice" });
    await addJob(daily, { broken: true, reason: "no user" });
    await addJob(daily, { active: false, node: "master" });
    assert.deepEqual(await lines("--apply"), [
      "pgpro 1: not mapped: it is bound to the node other",
      "pgpro 2: not mapped: it runs when the server starts",
      "pgpro 3: not mapped: it has no commands",
      "pgpro 4: not mapped: it has no schedule",
      `pgpro 5: not mapped: owner alice: needs users; or an entry with this user; or --any-owner, to let it run as ${user}`,
      "pgpro 6: differs: it is broken there (no user), and is paused here",
      "pgpro 7: same",
    ]);
    assert.deepEqual(await rows("key, plan = 'infinity' AS paused"), [
      { key: "pgpro 6", paused: true },
      { key: "pgpro 7", paused: true },
    ]);
  });
});
