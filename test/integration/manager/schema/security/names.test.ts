import assert from "node:assert/strict";
import { after, it } from "node:test";
import { identifier } from "../../../../../src/shared/postgres/quoting.js";
import { createDatabase, onServer } from "../../../../support/database.js";
import { PgTask } from "../../../../support/pgTask.js";
import { waitForRow } from "../../../../support/tasks.js";
import { connectTo } from "../../../../support/connectTo.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const mark = database.target.database.slice(-8);

/** Names of at most 63 bytes that break any statement or text in which they are not quoted. */
const names = [
  `"; DROP TABLE canary; --${mark}`,
  `'); DROP TABLE canary; --${mark}`,
  `a\nb\t\\ $$ %I :"table" ${mark}`,
  `${"ж".repeat(27)}!${mark}`,
  `${"x".repeat(55)}${mark}`,
  `🐘 SELECT Üñï ${mark}`,
];

after(() =>
  onServer(async (server) => {
    for (const name of names) {
      await server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", [name]);
      await server.query(`DROP DATABASE ${identifier(name)}`);
      await server.query(`DROP ROLE ${identifier(name)}`);
    }
  }),
);

pgTask.launch({
  url: database.url,
  "pg_task.create": true,
  "pg_task.json": names.map((name) => ({ data: name, user: name, schema: name, table: name })),
});

it("creates roles, databases, schemas and tables of any name, and serves them", async () => {
  await pgTask.line("ready");
  assert.deepEqual(pgTask.linesMatching(/wait/), []);
  assert.equal(pgTask.linesMatching("serving table").length, names.length);
});

for (const name of names) {
  const table = `${identifier(name)}.${identifier(name)}`;

  it(`runs, repeats, pauses, stops and returns tasks with all names being ${JSON.stringify(name)}`, async () => {
    await pgTask.line("ready");
    const client = await connectTo({ ...database.target, database: name });
    await client.query("CREATE TABLE canary ()");
    const insert = async (columns: string, ...values: unknown[]): Promise<string> => {
      const places = values.map((_, index) => `$${index + 2}`).join(", ");
      const { rows } = await client.query<{ id: string }>(
        `INSERT INTO ${table} ("group", ${columns}) VALUES ($1, ${places}) RETURNING id`,
        [name, ...values],
      );
      return rows[0]?.id ?? "";
    };
    const ended = async (id: string, state: string): Promise<{ output: string; error: string }> =>
      await waitForRow(client, `SELECT * FROM ${table} WHERE id = $1 AND state::text = $2`, [id, state]);

    const settings = ["schema", "table", "group"].map((key) => `current_setting('pg_task.${key}')`);
    const told = await insert("input", `SELECT ${settings.join(" || '|' || ")}, current_user`);
    const { output } = await ended(told, "DONE");
    assert.equal(output.split("\n").length, 2 + 4 * (name.split("\n").length - 1));
    assert.ok(output.endsWith(`${name}|${name}|${name}\t${name}`));

    const failed = await insert("input, data", `SELECT ${identifier(name)}`, name);
    assert.match((await ended(failed, "FAIL")).error, /does not exist/);

    await ended(await insert("input, max", "SELECT 1", -1), "DONE");
    const repeated = await insert("input, repeat", "SELECT 1", "1 day");
    await ended(repeated, "DONE");
    await waitForRow(client, `SELECT FROM ${table} WHERE parent = $1`, [repeated]);
    const child = await insert("input", `INSERT INTO ${table} (input) VALUES ('SELECT 1')`);
    await waitForRow(client, `SELECT FROM ${table} WHERE parent = $1 AND state::text = 'DONE'`, [child]);

    const long = await insert("input", "SELECT pg_sleep(600)");
    await ended(long, "WORK");
    await client.query(`UPDATE ${table} SET state = 'STOP' WHERE id = $1`, [long]);
    await waitForRow(client, `SELECT FROM ${table} WHERE id = $1 AND stop IS NOT NULL`, [long]);

    assert.equal((await client.query("SELECT to_regclass('canary') AS there")).rows[0]?.there, "canary");
    await client.end();
  });
}
