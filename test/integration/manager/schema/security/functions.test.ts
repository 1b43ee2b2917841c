import assert from "node:assert/strict";
import { after, it } from "node:test";
import { disconnect, type Client } from "../../../../../src/shared/postgres/client.js";
import { createDatabase, onServer } from "../../../../support/database.js";
import { PgTask } from "../../../../support/pgTask.js";
import { waitForState } from "../../../../support/tasks.js";
import { connectTo } from "../../../../support/connectTo.js";

const pgTask = new PgTask();
/** In this database, PUBLIC has no EXECUTE privilege on new functions. */
const database = await createDatabase("empty");
const admin = await database.connect();
const name = database.target.database;

/** Roles belong to the whole server, so their names contain the name of the test's database. */
const [owner, producer, reader] = [`owner_${name}`, `producer_${name}`, `reader_${name}`];

const clients: Client[] = [];
const opened = async (user: string): Promise<Client> => {
  const client = await connectTo({ ...database.target, user });
  clients.push(client);
  return client;
};
// By then, the database has been dropped, with everything that the roles owned.
after(async () => {
  await Promise.all(clients.map((client) => disconnect(client)));
  await onServer((server) => server.query(`DROP ROLE ${owner}, ${producer}, ${reader}`));
});

await admin.query(`
  CREATE ROLE ${owner} LOGIN; CREATE ROLE ${producer} LOGIN; CREATE ROLE ${reader} LOGIN;
  GRANT CREATE, USAGE ON SCHEMA public TO ${owner};
  GRANT USAGE ON SCHEMA public TO ${producer}, ${reader};
  ALTER DEFAULT PRIVILEGES FOR ROLE ${owner} REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC`);
await pgTask.start({ url: database.url, "pg_task.json": [{ data: name, user: owner }] });

const grants = `
  GRANT INSERT (input), SELECT (id) ON task TO ${producer};
  GRANT USAGE ON SEQUENCE task_id_seq TO ${producer};
  GRANT SELECT ON task, task_pause, task_owed, task_turn, task_stats, task_errors, task_groups, task_schedules TO ${reader}`;
await admin.query(grants);

it("lets producers insert with and without a plan set in their session", async () => {
  const client = await opened(producer);
  for (const plan of ["", "-1 min"]) {
    await client.query("SELECT set_config('pg_task.plan', $1, false)", [plan]);
    const { rows } = await client.query<{ id: string }>(
      "INSERT INTO task (input) VALUES ('SELECT current_user') RETURNING id",
    );
    assert.equal((await waitForState(admin, rows[0]?.id ?? "", "DONE")).output, owner);
  }
});

const views = ["task_stats", "task_errors", "task_groups", "task_schedules"];

it("lets readers query the views", async () => {
  const client = await opened(reader);
  for (const view of views) await client.query(`SELECT * FROM ${view}`);
});
