import type { Client } from "../../src/shared/postgres/client.js";
import { createDatabase, type TestDatabase } from "./database.js";
import { PgTask } from "./pgTask.js";
import { token, Web } from "./web.js";

type Configuration = Readonly<Record<string, unknown>>;

interface Started {
  readonly database: TestDatabase;
  readonly client: Client;
  readonly config: Configuration;
  readonly pgTask: PgTask;
  readonly web: Web;
  /** The first table's id in the API. */
  readonly table: string;
}

/**
 * Starts pg-task with a web server, for a database of its own. Must be called at the top level of a test file.
 *
 * @param more configuration. A function gets the database, and can prepare it before pg-task starts.
 */
export async function startWeb(
  more: Configuration | ((database: TestDatabase, client: Client) => Configuration | Promise<Configuration>) = {},
): Promise<Started> {
  const pgTask = new PgTask();
  const database = await createDatabase();
  const client = await database.connect();
  const config = {
    url: database.url,
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
    "pg_task.sleep": 100,
    ...(typeof more === "function" ? await more(database, client) : more),
  };
  await pgTask.start(config);
  const web = await Web.connect(pgTask);
  return { database, client, config, pgTask, web, table: await web.tableId() };
}
