import assert from "node:assert/strict";
import { describe } from "node:test";
import { createDatabase } from "../support/database.js";
import { doctor, type DoctorLine } from "../support/doctor.js";
import { test } from "../support/limitedTest.js";
import { createRole } from "../support/taskTables.js";

const database = await createDatabase();
const client = await database.connect();
const env = { DATABASE_URL: database.url };

async function lineAbout(
  name: string,
  given: Readonly<Record<string, string>>,
): Promise<DoctorLine> {
  const { lines } = await doctor(given);
  const line = lines.findLast((each) => each.name === name);
  assert.ok(line, `no line about ${name}`);
  return line;
}

/** The environment of a machine whose clock is so far ahead of this one's, in ms. */
function clockAhead(ms: number): Record<string, string> {
  const code = `const now = Date.now; Date.now = () => now() + (${ms});`;
  return { ...env, NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` };
}

describe("pg-task doctor, of the clocks of server and machine,", () => {
  for (const [machine, ms, words] of [
    ["behind", -90_000, "ahead of"],
    ["ahead", 90_000, "behind"],
  ] as const) {
    test(`tells that the machine's is ${machine}, by how much, and what to do`, async () => {
      const { level, text, remedy } = await lineAbout("clock", clockAhead(ms));
      assert.equal(level, "warn");
      const [, found, way] = /^the server's is (\d+) ms (.*) this machine's$/.exec(text) ?? [];
      assert.equal(way, words);
      // What the question took is never counted in.
      assert.ok(Number(found) > 2000 && Number(found) <= 90_000, text);
      assert.match(remedy, /let both follow the same time server/);
    });

    test(`lets less than two seconds pass where the machine's is ${machine}`, async () => {
      const { level, text } = await lineAbout("clock", clockAhead(ms / 60));
      assert.equal(level, "ok");
      const [, found] = /^the server's is (\d+) ms/.exec(text) ?? [];
      assert.ok(Number(found) <= 1500, text);
    });
  }

  test("finds no difference where there is none", async () => {
    const { level, text } = await lineAbout("clock", env);
    assert.deepEqual([level, text], ["ok", "the server's is 0 ms ahead of this machine's"]);
  });
});

describe("pg-task doctor, as a plain role,", () => {
  test("says that others' open transactions are hidden, and the statement that shows them", async () => {
    const role = await createRole(client, `sight_${database.target.database}`);
    const plain = { DATABASE_URL: database.url.replace(/\/\/[^@]+@/, `//${role}@`) };
    await client.query(`GRANT SELECT ON task, task_pause TO ${role}`);
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
        `1 of other roles is open, and the server does not show ${role} for how long; of those it shows, none for more than 10 minutes`,
      ],
    );
    await client.query("COMMIT");
    assert.deepEqual(await look(plain), none);
    await client.query(remedy);
    await client.query("BEGIN");
    assert.deepEqual(await look(plain), none);
    await client.query("COMMIT");
  });

  test("says which settings it was not shown, and who is", async () => {
    const role = await createRole(client, `settings_${database.target.database}`);
    const plain = { DATABASE_URL: database.url.replace(/\/\/[^@]+@/, `//${role}@`) };
    const unseen =
      "not looked at, since only members of pg_read_all_settings see it: shared_preload_libraries";
    assert.equal((await lineAbout("settings", plain)).text, unseen);
    await client.query(`GRANT pg_read_all_settings TO ${role}`);
    assert.notEqual((await lineAbout("settings", plain)).text, unseen);
  });
});
