import assert from "node:assert/strict";
import { describe } from "node:test";
import { importing } from "../../../support/importLines.js";
import { test } from "../../../support/limitedTest.js";
import { timetableTables } from "../../../support/schedulerTables.js";

// pg_timetable is no package of Debian, so its tables are made by its script, and it was not tried.
const emptied = "timetable.chain, timetable.task";
const { client, tasks, run, lines, rows, db, user } = await importing("pg_timetable", timetableTables, emptied);
await client.query(`ALTER DATABASE ${db} SET "TimeZone" = 'Europe/Berlin'`);

/** Adds a chain with these columns and tasks, as SQL. */
async function addChain(columns: string, values: string, ...steps: string[]): Promise<void> {
  await client.query(
    `INSERT INTO timetable.chain (chain_name, live, max_instances${columns}) VALUES ('chain ' || nextval('task_id_seq'), true, 1${values})`,
  );
  for (const [order, step] of steps.entries()) {
    const [names = "", given = ""] = step.split(" = ");
    await client.query(
      `INSERT INTO timetable.task (chain_id, task_order, command${names === "" ? "" : `, ${names}`}) SELECT max(chain_id), ${order}, 'SELECT ${order + 1};'${given === "" ? "" : `, ${given}`} FROM timetable.chain`,
    );
  }
}

describe("pg-task import pg_timetable", () => {
  test("takes over schedules", async () => {
    for (const schedule of ["'0 3 * * 1'", "'*/5 4 1,15 * 1-5'", "NULL", "'@every 1 hour'", "'@after 10 minutes'"]) {
      await addChain(", run_at", `, ${schedule}`, "");
    }
    assert.deepEqual(await lines("--apply"), [
      "pg_timetable 1: same",
      "pg_timetable 2: differs: a time that the clocks skip is left out",
      "pg_timetable 3: same",
      "pg_timetable 4: same",
      "pg_timetable 5: same",
    ]);
    const zone = "Europe/Berlin";
    const minutes = Array.from({ length: 12 }, (_, index) => index * 5).join(",");
    assert.deepEqual(await rows("rule, zone, repeat::text, drift, input"), [
      { rule: "0 3 * * 1", zone, repeat: "00:00:00", drift: false, input: "SELECT 1" },
      {
        rule: `DTSTART:20000101T000000\nRRULE:FREQ=DAILY;BYMONTHDAY=1,15;BYDAY=MO,TU,WE,TH,FR;BYHOUR=4;BYMINUTE=${minutes};BYSECOND=0`,
        zone,
        repeat: "00:00:00",
        drift: false,
        input: "SELECT 1",
      },
      { rule: "* * * * *", zone, repeat: "00:00:00", drift: false, input: "SELECT 1" },
      { rule: null, zone: null, repeat: "01:00:00", drift: false, input: "SELECT 1" },
      { rule: null, zone: null, repeat: "00:10:00", drift: true, input: "SELECT 1" },
    ]);
    assert.equal(await tasks.value("SELECT count(*)::int FROM timetable.chain WHERE live"), 0);
    await run("import", "pg_timetable", "--back");
    assert.equal(await tasks.value("SELECT count(*)::int FROM timetable.chain WHERE live"), 5);
  });

  test("takes over the tasks of a chain as one input, or as steps", async () => {
    const at = [", run_at, timeout", ", '0 3 * * *', 1000"] as const;
    await addChain(...at, "", "");
    await addChain(...at, "", "ignore_error = true", "autonomous, timeout = true, 500");
    await addChain(
      `${at[0]}, on_error, client_name, max_instances_`.replace(", max_instances_", ""),
      `${at[1]}, 'SELECT 0', 'worker'`,
      "",
    );
    await addChain(...at, `database_connection = 'host=h dbname=d'`);
    await client.query(`INSERT INTO timetable.parameter SELECT max(task_id), 1, '["a", 2]' FROM timetable.task`);
    await client.query(
      "UPDATE timetable.chain SET max_instances = CASE chain_id WHEN 1 THEN 3 END WHERE chain_id IN (1, 4)",
    );
    const steps = "each step is a transaction of its own here";
    assert.deepEqual(await lines("--apply"), [
      "pg_timetable 1: same",
      `pg_timetable 2: differs: ${steps}; the time limit of the whole chain is not taken over`,
      `pg_timetable 3: differs: ${steps}; it was bound to the client worker`,
      "pg_timetable 4: differs: its runs do not overlap here",
    ]);
    const [one, chain, failing, remote] = await rows("input, timeout::text, overlap, max, args, remote");
    const plain = { args: null, remote: null };
    assert.deepEqual(one, { ...plain, input: "SELECT 1;\nSELECT 2", timeout: "00:00:01", overlap: true, max: 2 });
    assert.match(
      String(chain?.["input"]),
      /^SELECT "public"\."task_chain"\( E?'\[\{"input":"SELECT 1;"\},\{"input":"SELECT .*task_chain.*timeout.*500 ms.*, key => 'pg_timetable 2 step', /,
    );
    assert.match(String(chain?.["input"]), /"group" => 'pg_timetable 2 chain \d+ steps'\)$/);
    assert.match(
      String(failing?.["input"]),
      /^SELECT "public"\."task_chain"\('\[\{"input":"SELECT 1;","within":"1000 ms"\}\]'::pg_catalog\.jsonb, fail => 'SELECT 0', key => 'pg_timetable 3 step', /,
    );
    assert.deepEqual(remote, {
      input: "SELECT 1;",
      timeout: "00:00:01",
      overlap: null,
      max: 0,
      args: ["a", 2],
      remote: "host=h dbname=d",
    });
  });

  test("lets exclusive chains run alone in the table, as one input or with all their steps", async () => {
    const at = [", run_at, exclusive_execution", ", '0 3 * * *', true"] as const;
    await addChain(...at, "");
    await addChain(...at, "", "autonomous = true");
    await addChain(...at, "", "ignore_error = true", "");
    const steps = "differs: each step is a transaction of its own here";
    assert.deepEqual(await lines("--apply"), [
      "pg_timetable 1: same",
      `pg_timetable 2: ${steps}`,
      `pg_timetable 3: ${steps}`,
    ]);
    const found = await rows("alone, input");
    assert.deepEqual(found[0], { alone: "table", input: "SELECT 1" });
    for (const [place, chains] of [
      [1, 1],
      [2, 2],
    ] as const) {
      assert.equal(found[place]?.["alone"], null);
      assert.equal(String(found[place]?.["input"]).match(/alone/g)?.length, chains);
    }
  });

  test("takes over a job that timetable.add_job has made", async () => {
    await addChain(", run_at", ", '0 3 * * *'", "ignore_error, autonomous = true, true");
    await client.query("INSERT INTO timetable.parameter SELECT max(task_id), 1, NULL FROM timetable.task");
    assert.deepEqual(await lines("--apply"), ["pg_timetable 1: same"]);
    assert.deepEqual(await rows("rule, input, args"), [{ rule: "0 3 * * *", input: "SELECT 1;", args: null }]);
  });

  test("does not take over what has no form here", async () => {
    for (const [columns, values, ...steps] of [
      [", run_at", ", '@reboot'", ""],
      [", self_destruct", ", true", ""],
      [", exclusive_execution", ", true", "run_as = 'alice'"],
      ["", "", "kind = 'PROGRAM'"],
      ["", ""],
      ["", "", "run_as = 'alice'", ""],
      ["", "", "run_as = 'alice'"],
    ] as const)
      await addChain(columns, values, ...steps);
    await addChain("", "", "");
    await client.query(`INSERT INTO timetable.parameter SELECT max(task_id), 1, '{}' FROM timetable.task`);
    await addChain("", "", "database_connection = 'password=${secret:p}'");
    assert.deepEqual(await lines(), [
      "pg_timetable 1: not mapped: @reboot",
      "pg_timetable 2: not mapped: self_destruct",
      "pg_timetable 3: not mapped: exclusive_execution with run_as",
      "pg_timetable 4: not mapped: it has a task of the kind PROGRAM",
      "pg_timetable 5: not mapped: it has no task",
      "pg_timetable 6: not mapped: its tasks run as several roles",
      `pg_timetable 7: not mapped: owner alice: needs users; or an entry with this user; or --any-owner, to let it run as ${user}`,
      "pg_timetable 8: not mapped: it has parameters that are no array",
      "pg_timetable 9: not mapped: it uses a secret",
    ]);
    assert.match((await lines("--any-owner"))[6] ?? "", new RegExp(`differs: ran as alice, and runs as ${user}`));
  });

  test("copies the last runs", async () => {
    await addChain(", run_at", ", '0 3 * * *'", "");
    await client.query(`INSERT INTO timetable.execution_log (chain_id, txid, last_run, finished, pid, returncode, command, output, client_name)
      VALUES (1, 1, '2026-01-01 03:00Z', '2026-01-01 03:01Z', 5, 0, 'SELECT 1', 'fine', 'w'), (1, 2, '2026-01-02 03:00Z', '2026-01-02 03:01Z', 5, -1, 'SELECT 1', 'wrong', 'w')`);
    await lines("--apply");
    assert.deepEqual(await rows("state::text, output, error"), [
      { state: "DONE", output: "fine", error: null },
      { state: "FAIL", output: null, error: "wrong" },
      { state: "PLAN", output: null, error: null },
    ]);
  });
});
