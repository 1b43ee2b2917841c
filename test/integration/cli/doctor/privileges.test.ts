import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, type TestContext } from "node:test";
import { envOf } from "../../../support/cli.js";
import { createDatabase, serverMajor } from "../../../support/database.js";
import { doctor, type DoctorLine } from "../../../support/doctor.js";
import { test } from "../../../support/limitedTest.js";
import { findPgBouncer, startPgBouncer } from "../../../support/pgbouncer.js";
import { createRole } from "../../../support/taskTables.js";
import { temporaryFolder } from "../../../support/temporaryFolder.js";
import { connectTo } from "../../../support/connectTo.js";

const database = await createDatabase();
const client = await database.connect();
const env = { DATABASE_URL: database.url };

async function lineAbout(name: string, given: Readonly<Record<string, string>>, cwd?: string): Promise<DoctorLine> {
  const { lines } = await doctor(given, cwd);
  const line = lines.findLast((each) => each.name === name);
  assert.ok(line, `no line about ${name}`);
  return line;
}

/** Returns what the doctor says of the clocks if this machine's is ahead by `ms` milliseconds. */
async function withClockAhead({ mock }: TestContext, ms: number): Promise<DoctorLine> {
  const now = Date.now.bind(Date);
  mock.method(Date, "now", () => now() + ms);
  return await lineAbout("clock", env);
}

describe("pg-task doctor, of the clocks of server and machine,", () => {
  for (const [machine, ms, words] of [
    ["behind", -90_000, "ahead of"],
    ["ahead", 90_000, "behind"],
  ] as const) {
    test(`reports that this machine's clock is ${machine}, by how much, and a remedy`, async (context) => {
      const { level, text, remedy } = await withClockAhead(context, ms);
      assert.equal(level, "warn");
      const [, found, way] = /^the server's clock is (\d+) ms (.*) this machine's$/.exec(text) ?? [];
      assert.equal(way, words);
      // The time that the query takes is not part of the difference.
      assert.ok(Number(found) > 2000 && Number(found) <= 90_000, text);
      assert.match(remedy, /synchronize both with the same time server/);
    });

    test(`ignores less than two seconds if this machine's clock is ${machine}`, async (context) => {
      const { level, text } = await withClockAhead(context, ms / 60);
      assert.equal(level, "ok");
      const [, found] = /^the server's clock is (\d+) ms/.exec(text) ?? [];
      assert.ok(Number(found) > 0 && Number(found) <= 1500, text);
    });
  }

  test("reports no difference between equal clocks", async () => {
    const { level, text } = await lineAbout("clock", env);
    assert.deepEqual([level, text], ["ok", "the server's clock is 0 ms ahead of this machine's"]);
  });
});

describe("pg-task doctor, as a plain role,", () => {
  test("reports that other roles' open transactions are hidden, with the GRANT that shows them", async () => {
    const role = await createRole(client, `sight_${database.target.database}`);
    const plain = envOf(database, role);
    await client.query(`GRANT SELECT ON task, task_pause, task_turn TO ${role}`);
    const none = { level: "ok", text: "none open for more than 10 minutes" };
    const look = async (given: typeof plain): Promise<Pick<DoctorLine, "level" | "text">> => {
      const { level, text } = await lineAbout("transactions", given);
      return { level, text };
    };
    assert.deepEqual(await look(plain), none);
    await client.query("BEGIN");
    assert.deepEqual(await look(env), none);
    const { level, text, remedy } = await lineAbout("transactions", plain);
    assert.deepEqual(
      [level, text],
      [
        "warn",
        `1 open of other roles, since when is hidden from ${role}; no visible one open for more than 10 minutes`,
      ],
    );
    await client.query("COMMIT");
    assert.deepEqual(await look(plain), none);
    await client.query(remedy);
    await client.query("BEGIN");
    assert.deepEqual(await look(plain), none);
    await client.query("COMMIT");
  });

  test("names the settings that are hidden from it, and who sees them", async () => {
    const role = await createRole(client, `settings_${database.target.database}`);
    const plain = envOf(database, role);
    const unseen = "not checked, visible only to members of pg_read_all_settings: shared_preload_libraries";
    assert.equal((await lineAbout("settings", plain)).text, unseen);
    await client.query(`GRANT pg_read_all_settings TO ${role}`);
    assert.notEqual((await lineAbout("settings", plain)).text, unseen);
  });
});

describe("pg-task doctor, of the server,", () => {
  test("reports too few connections for pg_conf.max, and how many sessions would fit", async () => {
    const { rows } = await client.query("SELECT current_setting('max_connections') AS most");
    const most = Number(rows[0]?.most);
    const cwd = await temporaryFolder();
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ "pg_conf.max": 5000 }));
    const { level, text, remedy } = await lineAbout("connections", env, cwd);
    assert.equal(level, "warn");
    const [, taken] = new RegExp(
      `^(\\d+) of ${most} in use; pg-task may use up to 5002, and leaves 10 to others$`,
    ).exec(text) ?? [text];
    assert.match(remedy, new RegExp(`or lower pg_conf.max to ${most - 10 - Number(taken)}$`));
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ "pg_conf.max": 1 }));
    assert.equal((await lineAbout("connections", env, cwd)).level, "ok");
  });
});

describe("pg-task doctor, of a table,", () => {
  test("reports dead rows, with the VACUUM that removes them", async () => {
    assert.equal((await lineAbout("bloat", env)).level, "ok");
    const writer = await connectTo(database.target);
    // Keeps autovacuum from vacuuming the table. Since version 13, inserts can be a reason to vacuum as well.
    await writer.query("ALTER TABLE task SET (autovacuum_vacuum_threshold = 2000000000)");
    if ((await serverMajor()) >= 13) {
      await writer.query("ALTER TABLE task SET (autovacuum_vacuum_insert_threshold = -1)");
    }
    await writer.query("INSERT INTO task (input, state) SELECT '', 'DONE' FROM generate_series(1, 20000)");
    await writer.query("DELETE FROM task");
    await writer.end();
    let line: DoctorLine;
    // The server updates its statistics only a moment after the connection has ended.
    do line = await lineAbout("bloat", env);
    while (line.level === "ok");
    assert.match(line.text, /^20000 dead and 0 live rows, last vacuumed never$/);
    const [statement = ""] = line.remedy.split(";");
    await client.query(statement);
    do line = await lineAbout("bloat", env);
    while (line.level === "warn");
    assert.match(line.text, /^0 dead and 0 live rows, last vacuumed \d/);
  });
});

const bouncer = await findPgBouncer();

describe("pg-task doctor, through a pooler,", { skip: bouncer === null && "no PgBouncer" }, () => {
  test("names the pooler and the remedy", async () => {
    const { port } = await startPgBouncer(bouncer ?? "", "session", true);
    const url = `${database.url.replace(/:\d+\//, `:${port}/`)}?sslmode=disable`;
    const { code, lines } = await doctor({ DATABASE_URL: url });
    assert.equal(code, 3);
    const line = lines.find(({ name }) => name === "reached");
    assert.equal(line?.level, "fail");
    assert.match(line.text, /a pooler such as PgBouncer is there/);
    assert.match(`${line.text} ${line.remedy}`, /give the server's own address/);
  });
});

test("pg-task doctor names the privilege that is missing to create the table", async () => {
  const bare = await createDatabase("empty");
  const owner = await bare.connect();
  const user = await createRole(client, `bare_${bare.target.database}`);
  await owner.query("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
  const url = new URL(bare.url);
  url.username = user;
  const { level, text, remedy } = await lineAbout("table", { DATABASE_URL: url.href });
  assert.equal(level, "fail");
  const grant = new RegExp(`${user} may not create it: GRANT CREATE ON SCHEMA public TO "?${user}"?$`);
  assert.match(text, grant);
  assert.match(remedy, /^grant the privilege named/);
  await owner.query("DROP SCHEMA public");
  assert.match((await lineAbout("table", { DATABASE_URL: url.href })).text, /ON DATABASE test_/);
});

test("pg-task doctor says who owns a table that the entry's user may not read, and how to own it again", async () => {
  const lost = await createDatabase();
  const owner = await lost.connect();
  const user = await createRole(client, `lost_${lost.target.database}`);
  const url = new URL(lost.url);
  url.username = user;
  const { level, text, remedy } = await lineAbout("rights", { DATABASE_URL: url.href });
  const { rows } = await owner.query<{ name: string }>("SELECT current_user AS name");
  assert.equal(level, "fail");
  assert.equal(
    text,
    `${user} lacks SELECT, INSERT, UPDATE, DELETE on "public"."task", which ${String(rows[0]?.name)} owns`,
  );
  assert.equal(remedy, `ALTER TABLE "public"."task" OWNER TO "${user}"`);
  // The remedy can be pasted.
  await owner.query(remedy);
  const owned = await owner.query(
    "SELECT pg_get_userbyid(relowner) AS name FROM pg_class WHERE oid = 'task'::regclass",
  );
  assert.deepEqual(owned.rows, [{ name: user }]);
});
