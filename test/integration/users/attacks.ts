import assert from "node:assert/strict";
import { it } from "node:test";
import { sqlState, type Client } from "../../../src/shared/postgres/client.js";
import { waitForRow } from "../../support/tasks.js";
import { opened, password, UsersServer } from "../../support/users.js";

const limit = { timeout: 120_000 };

const refused = async (client: Client, sql: string, state = "42501"): Promise<void> =>
  await assert.rejects(client.query(sql), (error) => sqlState(error) === state, sql);

/** Each sentence of docs/users.md about what a task of one role can do to others. */
export async function attack(control: "superuser" | "CREATEROLE"): Promise<void> {
  const users = await UsersServer.start(control);
  const { server, pgTask, admin, tasks, alice, bob } = users;
  const nobodyElse = "alice,task_alice";
  await tasks.query("CREATE TABLE secret (text text); INSERT INTO secret VALUES ('the owner''s')");
  await bob.query("CREATE TABLE bobs (text text); INSERT INTO bobs VALUES ('bob''s')");
  await admin.query("CREATE TABLE who (did text, as_user name); GRANT INSERT, SELECT ON who TO PUBLIC");
  const didAs = async (did: string): Promise<string> => {
    const { rows } = await admin.query<{ names: string }>(
      "SELECT coalesce(string_agg(DISTINCT as_user::text, ',' ORDER BY as_user::text), '') AS names FROM who WHERE did = $1",
      [did],
    );
    return rows[0]?.names ?? "";
  };

  await it("a task runs as the role that has inserted it", limit, async () => {
    const [row, other] = [
      await users.run(alice, "SELECT current_user, session_user"),
      await users.run(bob, "SELECT current_user, session_user"),
    ];
    assert.equal(row.output, "current_user\tsession_user\nalice\ttask_alice");
    assert.equal(other.output, "current_user\tsession_user\nbob\ttask_bob");
    assert.equal((await users.run(tasks, "SELECT session_user")).output, "tasks");
    assert.match((await users.run(alice, "TABLE secret")).error ?? "", /permission denied/);
    assert.match((await users.run(alice, "TABLE bobs")).error ?? "", /permission denied/);
  });

  await it("a task cannot become anybody else", limit, async () => {
    for (const statement of [
      "SET ROLE bob",
      "SET ROLE tasks",
      "SET ROLE postgres",
      "RESET ROLE; SET ROLE bob",
      "SET ROLE NONE; SET ROLE tasks",
      "SET SESSION AUTHORIZATION bob",
      "SET SESSION AUTHORIZATION tasks",
      "RESET SESSION AUTHORIZATION; SET ROLE tasks",
      "SELECT set_config('role', 'bob', false)",
      "SELECT set_config('session_authorization', 'tasks', false)",
      "COMMIT; SET ROLE bob",
      "DO $$ BEGIN EXECUTE 'RESET ROLE'; EXECUTE 'SET ROLE tasks'; END $$",
    ]) {
      const { state, error } = await users.run(alice, statement);
      assert.equal(state, "FAIL", statement);
      assert.match(error ?? "", /permission denied|role/, statement);
    }
    for (const statement of ["RESET ROLE", "SET ROLE NONE", "SET SESSION AUTHORIZATION DEFAULT"]) {
      const { output, error } = await users.run(alice, `${statement}; SELECT current_user`);
      assert.ok(
        output?.endsWith("task_alice") === true || output?.endsWith("alice") === true,
        `${statement} ${output} ${error}`,
      );
    }
    assert.equal((await users.run(alice, "SELECT current_user")).output, "alice");
  });

  await it("what runs at the end of a transaction runs as the role", limit, async () => {
    await alice.query(`
      CREATE TABLE public.deferring (a int);
      CREATE FUNCTION public.at_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.who VALUES ('deferred', current_user); RETURN NULL; END $$;
      CREATE CONSTRAINT TRIGGER at_end AFTER INSERT ON public.deferring DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION public.at_end();
      CREATE FUNCTION public.when_read() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.who VALUES ('held', current_user); RETURN 1; END $$`);
    const more = [
      "INSERT INTO public.deferring VALUES (1)",
      "RESET ROLE; INSERT INTO public.deferring VALUES (1)",
      "DECLARE c CURSOR WITH HOLD FOR SELECT public.when_read()",
      "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT public.when_read(); RESET ROLE; COMMIT",
    ];
    await alice.query("GRANT INSERT ON public.deferring TO task_alice").catch(() => {});
    for (const input of more) assert.equal((await users.run(alice, input)).error, null, input);
    for (const did of ["deferred", "held"]) {
      const names = await didAs(did);
      assert.ok(names !== "" && nobodyElse.includes(names), `${did}: ${names}`);
    }
  });

  await it("functions and operators of an author are never run by anybody else", limit, async () => {
    await alice.query(`
      CREATE FUNCTION public.spy(kind text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.who VALUES ('spy', current_user); RETURN true; END $$;
      CREATE FUNCTION public.same(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT public.spy('=') $$;
      CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.same);
      CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE sql AS $$ SELECT 'x' WHERE public.spy('unnest') $$;
      CREATE FUNCTION public.concat(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' WHERE public.spy('concat') $$;
      CREATE FUNCTION public.pg_has_role(name, text) RETURNS boolean LANGUAGE sql AS $$ SELECT public.spy('role') $$;
      CREATE FUNCTION public.coalesce(name, name) RETURNS name LANGUAGE sql AS $$ SELECT 'bob'::name $$;
      CREATE FUNCTION public.split_part(text, text, integer) RETURNS text LANGUAGE sql AS $$ SELECT 'x' WHERE public.spy('s') $$`);
    await admin.query(
      "ALTER ROLE alice SET search_path = public, pg_catalog; ALTER ROLE bob SET search_path = public, pg_catalog",
    );
    const catching = await opened(server, "alice", "shop");
    await catching.query("SET search_path = public, pg_catalog");
    const { output } = await users.run(catching, "SELECT current_setting('search_path')", { key: "a", retry: 1 });
    assert.equal(output, "public, pg_catalog");
    await users.run(bob, "SELECT 1", { key: "b" });
    await users.run(tasks, "SELECT 1", { key: "c" });
    const names = await didAs("spy");
    assert.ok(nobodyElse.includes(names), `run by ${names}`);
    await admin.query("ALTER ROLE alice RESET search_path; ALTER ROLE bob RESET search_path");
    await alice.query("DROP OPERATOR public.= (text, text)");
  });

  await it("temporary objects that bear the names of pg-task's shadow nothing", limit, async () => {
    const input = `SET search_path = pg_temp, public;
      CREATE TEMP TABLE task (LIKE public.task); CREATE TEMP TABLE task_ledger_1 (a int); CREATE TEMP TABLE task_role (role name);
      CREATE FUNCTION pg_temp.task_finish(bigint, bigint, text, integer) RETURNS boolean LANGUAGE sql AS 'SELECT true';
      INSERT INTO public.who VALUES ('temp', current_user)`;
    const row = await users.run(alice, input);
    assert.deepEqual([row.state, row.error], ["DONE", null]);
    assert.equal((await users.run(alice, "SELECT count(*) FROM task")).error, null);
  });

  await it("nothing of a task is left in the session for the next one", limit, async () => {
    const group = "one after another";
    await users.run(alice, "PREPARE p AS SELECT 1; CREATE TEMP TABLE left_over (a int); LISTEN news; SET ROLE NONE", {
      group,
    });
    const input = `SELECT current_user, (SELECT count(*) FROM pg_prepared_statements WHERE name = 'p'),
      to_regclass('pg_temp.left_over') IS NULL, (SELECT count(*) FROM pg_listening_channels())`;
    const { output } = await users.run(alice, input, { group, header: false });
    assert.equal(output, "alice\t0\tt\t0");
  });

  await it("nobody sees or changes rows of others, nor writes tasks of others", limit, async () => {
    const his = await users.insert(bob, "SELECT 'his'", { plan: "infinity", key: "same", data: "secret of bob" });
    const hers = await users.insert(alice, "SELECT 'hers'", { plan: "infinity", key: "same" });
    for (const sql of [
      `SELECT id FROM task WHERE id = ${his}`,
      `UPDATE task SET input = 'SELECT 2' WHERE id = ${his} RETURNING id`,
      `UPDATE task SET state = 'STOP' WHERE id = ${his} RETURNING id`,
      `DELETE FROM task WHERE id = ${his} RETURNING id`,
      `SELECT 1 FROM task_schedules WHERE id = ${his}`,
    ])
      assert.deepEqual((await alice.query(sql)).rows, [], sql);
    for (const role of ["bob", "tasks", "task_bob", "postgres"]) {
      await refused(alice, `INSERT INTO task (input, role) VALUES ('SELECT 1', '${role}')`);
      await refused(alice, `UPDATE task SET role = '${role}' WHERE id = ${hers}`);
    }
    await refused(alice, "INSERT INTO task (input, role) VALUES ('SELECT 1', 'nobody')", "42704");
    const { rows } = await alice.query(
      "INSERT INTO task (input, role, plan) VALUES ('SELECT 1', NULL, 'infinity') RETURNING role",
    );
    assert.deepEqual(rows, [{ role: "alice" }]);
    await alice.query("SET pgtask.manager = 'on'");
    await refused(alice, "INSERT INTO task (input, role) VALUES ('SELECT 1', 'bob')");
    await alice.query("RESET pgtask.manager");
    const output = await users.run(bob, "SELECT 'output of bob'");
    const waits = "SELECT current_setting('pg_task.results', true)";
    const told = await users.run(alice, waits, { after: [output.id] });
    assert.ok(!(told.output ?? "").includes("output of bob"), `told ${told.output}`);
    assert.match((await users.run(bob, waits, { after: [output.id] })).output ?? "", /output of bob/);
    const stolen = await users.run(alice, `UPDATE public.task SET input = 'SELECT 3' WHERE id = ${his}`);
    assert.equal(stolen.output, "UPDATE 0");
    const { rows: kept } = await bob.query(`SELECT input, role FROM task WHERE id = ${his}`);
    assert.deepEqual(kept, [{ input: "SELECT 'his'", role: "bob" }]);
  });

  await it("a role without a login is refused, and no superuser can get one", limit, async () => {
    await admin.query("CREATE ROLE carol; GRANT INSERT, SELECT ON task TO carol; GRANT carol TO alice");
    await refused(alice, "INSERT INTO task (input, role) VALUES ('SELECT 1', 'carol')");
    await refused(alice, "INSERT INTO task_role VALUES ('carol', 'task_carol')");
    await refused(alice, "UPDATE task_role SET login = 'task_alice'");
    await refused(alice, "SELECT login FROM task_role");
    await refused(tasks, "INSERT INTO task_role VALUES ('postgres', 'postgres')");
    await refused(tasks, "INSERT INTO task_role VALUES ('carol', 'postgres')");
    for (const login of ["tasks", "bob", "task_bob", "task_alice"])
      await refused(tasks, `INSERT INTO task_role VALUES ('carol', '${login}')`);
    await refused(tasks, "INSERT INTO task_role VALUES ('task_bob', 'task_bob')");
    await admin.query("REVOKE carol FROM alice; REVOKE ALL ON task FROM carol; DROP ROLE carol");
  });

  await it("nobody can prepare the list of roles of a table that is to get users", limit, async () => {
    await alice.query(
      "CREATE VIEW public.jobs_role AS SELECT 'alice'::name AS role, 'tasks'::name AS login, NULL::int AS max",
    );
    const entry = { data: "shop", user: "tasks", password, users: true, table: "jobs" };
    await pgTask.reload({ ...users.config, "pg_task.json": [...users.entries, entry] });
    await pgTask.logged(
      ({ msg, reason }) => msg === "manager unavailable, retrying" && /list of roles/.test(String(reason)),
    );
    await alice.query("DROP VIEW public.jobs_role");
    await pgTask.reload(users.config);
  });

  await it("only the session that has a task can prove it, and the ledgers are out of reach", limit, async () => {
    for (const name of ["ledger_1", "ledger_2", "home", "after"]) {
      await refused(alice, `SELECT * FROM task_${name}`);
      await refused(alice, `DELETE FROM task_${name}`);
    }
    const key = 4711;
    await admin.query("SELECT pg_advisory_lock($1)", [key]);
    const his = await users.insert(bob, `SELECT pg_advisory_lock_shared(${key})`);
    const { owner, take } = await waitForRow<{ owner: string; take: string }>(
      admin,
      "SELECT owner, (date_part('epoch', take) * 1000000)::bigint::text AS take FROM task WHERE id = $1 AND state = 'WORK'",
      [his],
    );
    const forged = `CREATE TEMP TABLE t (a int); INSERT INTO t VALUES (1); SELECT public.task_finish(${his}, ${take}, '${owner}', 1)`;
    const own = owner.replace(/^\d+/, "' || pg_backend_pid() || '");
    for (const input of [forged, forged.replace(owner, own), `SET pgtask.deleted = '${his}'; ${forged}`]) {
      const { state, error } = await users.run(alice, input);
      assert.equal(state, "FAIL", input);
      assert.match(error ?? "", /stopped or deleted/);
    }
    const invented = `SELECT set_config('pgtask.deleted', 'public.task'::regclass::oid || ' 99999999', true),
      public.task_finish(99999999, ${take}, '${owner}', 1)`;
    assert.equal(
      (await users.run(alice, `CREATE TEMP TABLE t (a int); INSERT INTO t VALUES (1); ${invented}`)).error,
      null,
    );
    const { rows } = await admin.query(
      "SELECT FROM (TABLE task_ledger_1 UNION ALL TABLE task_ledger_2) AS l WHERE id IN ($1, 99999999)",
      [his],
    );
    assert.equal(rows.length, 0);
    await admin.query("SELECT pg_advisory_unlock($1)", [key]);
    assert.equal((await users.ended(his)).state, "DONE");
  });

  await it("a task ends no session but those of its role", limit, async () => {
    await users.run(bob, "SELECT 1");
    const ends = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY (ARRAY['tasks', 'task_bob', 'postgres', 'manage']) AND pid <> pg_backend_pid()`;
    const { state, error } = await users.run(alice, ends);
    assert.equal(state, "FAIL");
    assert.match(error ?? "", /permission denied|must be a|must be/i);
    assert.equal((await users.run(alice, ends.replace("terminate", "cancel"))).state, "FAIL");
    assert.equal((await users.run(bob, "SELECT 1")).output, "1");
  });

  await it("what a role sends on pg-task's channels changes nothing", limit, async () => {
    const { rows } = await admin.query<{ oid: number }>("SELECT 'task'::regclass::oid AS oid");
    const channel = `pg_task_${rows[0]?.oid}`;
    const input = `DO $$ BEGIN FOR n IN 1..100 LOOP PERFORM pg_notify('${channel}', n::text); END LOOP;
      PERFORM pg_notify('${channel}', 'home'); PERFORM pg_notify('${channel}', '{'); END $$; LISTEN ${channel}`;
    assert.equal((await users.run(alice, input)).error, null);
    assert.equal((await users.run(bob, "SELECT 'on time'")).output, "on time");
  });

  await it("a role that changes its login harms only itself, and not for long", limit, async () => {
    const group = "settings";
    const input = `RESET ROLE; ALTER ROLE task_alice PASSWORD 'mine'; ALTER ROLE task_alice SET search_path = nowhere;
      ALTER ROLE task_alice IN DATABASE shop SET default_transaction_read_only = on; ALTER ROLE task_alice SET role = 'alice'`;
    const row = await users.run(alice, input, { group });
    assert.equal(row.error, null);
    assert.match(
      (await users.run(alice, "RESET ROLE; ALTER ROLE task_alice CREATEROLE")).error ?? "",
      /permission denied|must be|privilege/i,
    );
    assert.match(
      (await users.run(alice, "ALTER ROLE task_bob PASSWORD 'x'")).error ?? "",
      /permission denied|must|CREATEROLE/i,
    );
    // Its sessions are replaced, since the setting of a login has changed, and the new ones cannot log in at first.
    await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'task_alice'");
    assert.equal((await users.run(bob, "SELECT 1")).output, "1");
    const next = await users.run(alice, "SELECT current_user, current_setting('default_transaction_read_only')", {
      header: false,
    });
    assert.equal(next.output, "alice\toff");
    await users.run(
      alice,
      "RESET ROLE; ALTER ROLE task_alice IN DATABASE shop SET default_transaction_read_only = on",
      { group },
    );
    await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'task_alice'");
    const later = await users.run(alice, "SELECT current_setting('default_transaction_read_only')", { header: false });
    assert.equal(later.output, "off");
  });

  await it("a role has at most as many sessions as its row says", limit, async () => {
    const ids: string[] = [];
    for (let n = 0; n < 40; n += 1)
      ids.push(await users.insert(alice, "SELECT pg_sleep(0.05)", { group: "many", max: 10_000 }));
    const his = await users.run(bob, "SELECT 1");
    assert.equal(his.output, "1");
    for (const id of ids) assert.equal((await users.ended(id)).state, "DONE");
    const { rows } = await admin.query<{ most: string }>(
      `SELECT max((SELECT count(*) FROM task AS b WHERE b."group" = 'many' AND b.start <= a.start AND b.stop > a.start)) AS most
       FROM task AS a WHERE a."group" = 'many'`,
    );
    assert.ok(Number(rows[0]?.most) <= 3, `${rows[0]?.most} at once`);
    const { rows: limits } = await admin.query("SELECT rolconnlimit FROM pg_roles WHERE rolname = 'task_alice'");
    assert.deepEqual(limits, [{ rolconnlimit: 3 }]);
    assert.ok(pgTask.linesMatching("a recalled run has been executed").length === 0);
  });
}
