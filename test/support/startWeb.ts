import { createDatabase, type TestDatabase } from "./database.js";
import { startProcess, type TestProcess } from "./process.js";
import { token, Web } from "./web.js";

/** Starts pg-task with a web server, for one table in a database of its own. `table` is the table's id in the API. */
export async function startWeb(config: Readonly<Record<string, unknown>> = {}): Promise<{
  readonly database: TestDatabase;
  readonly client: Awaited<ReturnType<TestDatabase["connect"]>>;
  readonly program: TestProcess;
  readonly web: Web;
  readonly table: string;
}> {
  const database = await createDatabase();
  const client = await database.connect();
  const program = await startProcess({
    config: {
      url: database.url,
      "pg_http.listen": "127.0.0.1:0",
      "pg_http.token": token,
      "pg_task.sleep": 100,
      ...config,
    },
  });
  const web = await Web.connect(program);
  await program.line("ready");
  return { database, client, program, web, table: await web.tableId() };
}
