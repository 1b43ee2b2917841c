import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const name = database.target.database;
await client.query(`ALTER DATABASE ${name} SET pg_task."output" = '100 kB'`);
await pgTask.start({ url: database.url });

test("output is limited to what the database's setting allows", async () => {
  const row = await tasks.run("SELECT repeat('x', 200000)");
  assert.equal(row.state, "FAIL");
  assert.match(row.error ?? "", /^ERROR: {2}output exceeds 102400 bytes \(pg_task\.output\)\n/);
  const small = await tasks.run("SELECT repeat('x', 50000)");
  assert.equal(small.output?.length, 50_000);
});

for (const [setting, most] of [
  ["pg_task.fetch", 2],
  ["pg_task.limit", 1],
] as const) {
  test(`no claim takes more tasks than ${setting} of the database`, async () => {
    await pgTask.stop();
    await client.query(`ALTER DATABASE ${name} RESET ALL`);
    await client.query(`ALTER DATABASE ${name} SET ${setting.replace(".", '."')}" = ${most}`);
    const ids: string[] = [];
    for (let index = 0; index < 9; index += 1) {
      ids.push(...(await tasks.insert({ input: "SELECT pg_sleep(0.02)", group: `g${index}` })));
    }
    await pgTask.start({ url: database.url, "pg_task.fetch": 50 });
    const takes = (await tasks.ended(...ids)).map(({ take }) => take);
    for (const take of takes) assert.ok(takes.filter((each) => each === take).length <= most);
  });
}
