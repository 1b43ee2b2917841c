import assert from "node:assert/strict";
import { after, test } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { PgTask } from "../../../support/pgTask.js";
import { waitForState } from "../../../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
const pgTask = new PgTask();
after(() => pgTask.stop());
await pgTask.start({ url: database.url, "pg_task.sleep": 100 });
const { rows: settings } = await client.query<{ most: string }>(
  "SELECT current_setting('max_prepared_transactions') AS most",
);
const options = { skip: settings[0]?.most === "0" ? "max_prepared_transactions is 0" : false };

const changes = [
  "INSERT INTO task (input, \"group\", data) VALUES ('SELECT 1', 'prepared', 'NAME') RETURNING id",
  "UPDATE task SET gap = '1 ms' WHERE data = 'waiting' RETURNING id",
  "UPDATE task SET rule = '0 4 1 1 *' WHERE data = 'waiting' RETURNING id",
];

test("a transaction that writes tasks can be prepared with pg_task.notify off", options, async () => {
  await client.query("INSERT INTO task (input, plan, data) VALUES ('SELECT 1', 'infinity', 'waiting')");
  for (const value of ["off", "FALSE", "no", "0"]) {
    for (const [index, change] of changes.entries()) {
      const name = `${database.target.database} ${value} ${index}`;
      await client.query("BEGIN");
      await client.query(`SET LOCAL pg_task.notify = '${value}'`);
      const { rows } = await client.query<{ id: string }>(change.replace("NAME", name));
      await client.query(`PREPARE TRANSACTION '${name}'`);
      await client.query(`COMMIT PREPARED '${name}'`);
      // The manager finds the row although nobody has woken it.
      if (index === 0) await waitForState(client, rows[0]?.id ?? "", "DONE");
      else assert.equal(rows.length, 1);
    }
  }
});

test("otherwise, the notification is sent, and the server refuses to prepare the transaction", options, async () => {
  for (const value of ["on", ""]) {
    await client.query("BEGIN");
    await client.query(`SET LOCAL pg_task.notify = '${value}'`);
    await client.query("UPDATE task SET gap = '2 ms' WHERE data = 'waiting'");
    await assert.rejects(
      client.query("PREPARE TRANSACTION 'refused'"),
      /cannot PREPARE a transaction that has executed/,
    );
    await client.query("ROLLBACK");
  }
});
