import assert from "node:assert/strict";
import { it } from "node:test";
import { sqlState } from "../../../src/shared/postgres/client.js";
import { password, UsersServer } from "../../support/users.js";

const limit = { timeout: 120_000 };

const users = await UsersServer.start("superuser");
const { pgTask, alice, bob, tasks } = users;

/**
 * For each function of pg-task, functions that differ in the type of one parameter, or lack those with a default. The
 * server prefers them to pg-task's own for a call whose arguments do not have exactly the types of the parameters.
 */
const createOverloads = `
DO $do$
DECLARE
  f record;
  place integer;
  type regtype;
  types regtype[];
BEGIN
  FOR f IN SELECT p.proname, p.pronargs, p.pronargdefaults, p.proargtypes::oid[] AS args, p.prorettype::regtype AS result, p.proretset
    FROM pg_proc AS p WHERE p.pronamespace = 'public'::regnamespace AND p.proname LIKE 'task\\_%' AND p.prokind = 'f'
      AND p.prorettype <> 'trigger'::regtype AND pg_get_userbyid(p.proowner) = 'tasks' LOOP
    FOR place IN 0 .. f.pronargs - 1 LOOP
      FOREACH type IN ARRAY ARRAY['text', 'name', 'integer', 'bigint', 'timestamptz', 'timestamp', 'date']::regtype[] LOOP
        types := f.args[0 : place - 1]::regtype[] || type || f.args[place + 1 :]::regtype[];
        CONTINUE WHEN to_regprocedure(format('public.%I(%s)', f.proname, array_to_string(types, ', '))) IS NOT NULL;
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''overload of %s called''; END $f$',
          f.proname, array_to_string(types, ', '), CASE WHEN f.proretset THEN 'SETOF' END, f.result, f.proname);
      END LOOP;
      IF place >= f.pronargs - f.pronargdefaults THEN
        types := f.args[0 : place - 1]::regtype[];
        CONTINUE WHEN to_regprocedure(format('public.%I(%s)', f.proname, array_to_string(types, ', '))) IS NOT NULL;
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''overload of %s called''; END $f$',
          f.proname, array_to_string(types, ', '), CASE WHEN f.proretset THEN 'SETOF' END, f.result, f.proname);
      END IF;
    END LOOP;
  END LOOP;
END $do$`;

const rules = [
  "* * * * *",
  "@daily",
  "0 0 1 1 *",
  "*/5 9-17 * * MON-FRI",
  "15 30 2 L,LW,15W,L-3 * *",
  "0 0 * * FRI#2,SUNL",
  "30 2 29 2 ?",
  "30 2 * JAN-DEC/2 *",
  "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO",
  "FREQ=YEARLY;BYYEARDAY=-1,100;BYSETPOS=-1",
  "FREQ=MONTHLY;BYDAY=2MO,-1FR;BYHOUR=2;BYMINUTE=30",
  "FREQ=MONTHLY;BYMONTHDAY=-1;COUNT=3",
  "FREQ=WEEKLY;INTERVAL=2;WKST=SU;BYDAY=TU,TH;UNTIL=20990101T000000Z",
  "FREQ=DAILY;INTERVAL=3",
  "FREQ=HOURLY;INTERVAL=5;BYMINUTE=7,9",
  "FREQ=MINUTELY;INTERVAL=7;BYHOUR=3",
  "FREQ=SECONDLY;INTERVAL=11;BYSECOND=5,50",
  "DTSTART;TZID=Europe/Berlin:20300331T023000\nRRULE:FREQ=DAILY\nEXDATE;TZID=Europe/Berlin:20300401T023000\nRDATE:20310101T000000Z",
  "DTSTART;TZID=W. Europe Standard Time:20300101T090000\nRRULE:FREQ=WEEKLY",
  "BEGIN:VEVENT\nDTSTART;TZID=Europe/Berlin:20300101T090000\nRRULE:FREQ=DAILY\nEND:VEVENT",
];

const refusedRules = [
  "0 0 31 2 *",
  "0 0 30 FEB ?",
  "60 * * * *",
  "FREQ=DAILY;BYHOUR=99",
  "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
];

await it("nobody runs functions with the names of pg-task's and other parameters", limit, async () => {
  await alice.query(createOverloads);
  for (const [index, rule] of rules.entries())
    for (const zone of rule.includes("TZID") ? [null] : ["Europe/Berlin", null]) {
      const id = await users.insert(bob, "SELECT 1", {
        rule,
        zone,
        plan: "2030-03-01 00:00:00+00",
        key: `${index} ${zone}`,
      });
      await bob.query(`UPDATE task SET plan = plan + interval '1 second' WHERE id = ${id}`);
      await bob.query("SELECT public.task_pause($1::text), public.task_resume($1::text)", [`${index} ${zone}`]);
    }
  for (const rule of refusedRules)
    await assert.rejects(
      users.insert(bob, "SELECT 1", { rule }),
      (error) => sqlState(error) === "22023" && !/overload/.test(String(error)),
      rule,
    );
  await bob.query("SELECT * FROM task_schedules");
  for (const schedule of [
    "5 min",
    "0 3 * * *",
    "FREQ=DAILY;BYHOUR=3",
    "FREQ=DAILY;BYHOUR=3",
    "SELECT now() + interval '1 day'",
  ])
    await bob.query("SELECT public.task_schedule('a job'::text, $1::text, 'SELECT 1'::text, NULL::text, '{}'::jsonb)", [
      schedule,
    ]);
  await bob.query("SELECT public.task_run('a job'::text)");
  await bob.query("SELECT public.task_unschedule('a job'::text)");
  await bob.query("SELECT public.task_chain(ARRAY['SELECT 1', 'SELECT 2'], NULL::text, NULL::text, NULL::text)");
  await bob.query("SELECT * FROM public.task_times('0 0 L * *'::text, 'Europe/Berlin'::text, now(), 5)");
  const { id } = await users.run(bob, "SELECT 1/0", { retry: 0 });
  await bob.query(`SELECT public.task_retry(${id}::bigint)`);
});

await it("the manager does not either", limit, async () => {
  for (const rule of ["* * * * * *", "FREQ=SECONDLY", "FREQ=SECONDLY;COUNT=2"])
    assert.equal((await users.run(bob, "SELECT 1", { rule, key: `each ${rule}` })).state, "DONE");
  await users.run(bob, "SELECT 'an end'", { after: [(await users.run(bob, "SELECT 1")).id] });
  assert.deepEqual(
    pgTask.lines.filter((line) => JSON.stringify(line).includes("overload")),
    [],
  );
  const { rows } = await tasks.query("SELECT id, error FROM task WHERE error LIKE '%overload%'");
  assert.deepEqual(rows, []);
});

await it("a table does not use a type that belongs to somebody else", limit, async () => {
  await users.admin.query("CREATE SCHEMA shared AUTHORIZATION postgres; GRANT ALL ON SCHEMA shared TO tasks, alice");
  await alice.query(`CREATE TYPE shared.state AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'FAIL', 'GONE', 'STOP');
    CREATE FUNCTION shared.as_text(shared.state) RETURNS text LANGUAGE sql AS $$ SELECT current_user::text $$;
    CREATE CAST (shared.state AS text) WITH FUNCTION shared.as_text(shared.state)`);
  const entry = { data: "shop", user: "tasks", password, users: true, schema: "shared", table: "jobs" };
  await pgTask.reload({ ...users.config, "pg_task.json": [...users.entries, entry] });
  await pgTask.logged(
    ({ msg, reason }) =>
      msg === "manager unavailable, retrying" && /type .* belongs to role "?alice/.test(String(reason)),
  );
  await pgTask.reload(users.config);
});
