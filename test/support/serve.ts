import type { Client } from "../../src/shared/postgres/client.js";
import { createDatabase, type TestDatabase } from "./database.js";
import { PgTask } from "./pgTask.js";
import { Tasks } from "./tasks.js";

interface Served {
  readonly pgTask: PgTask;
  readonly database: TestDatabase;
  /** A user's connection. */
  readonly client: Client;
  readonly tasks: Tasks;
}

/**
 * Starts a pg-task in the test's process, for a database of its own. Must be called at the top level of a test file.
 *
 * @param prepare SQL to execute before
 */
export async function serve(configuration: Readonly<Record<string, unknown>> = {}, prepare = ""): Promise<Served> {
  const pgTask = new PgTask();
  const database = await createDatabase();
  const client = await database.connect();
  const tasks = await Tasks.create(client);
  await client.query(prepare);
  await pgTask.start({ url: database.url, "pg_task.sleep": 50, ...configuration });
  return { pgTask, database, client, tasks };
}
