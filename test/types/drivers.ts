/** Type tests of the library together with the drivers and loggers that users have. Nothing here is executed. */
import { Client, Pool } from "pg";
import { pino } from "pino";
import { start, TaskClient } from "../../src/library/index.js";

export async function useDriver(): Promise<void> {
  const pool = new Pool();
  const client = await pool.connect();
  const tasks = new TaskClient(pool);
  await tasks.add("SELECT", { client });
  await new TaskClient(new Client()).add("SELECT", { client: new Client() });
  await new TaskClient(client).end();
  await start({ url: "postgresql://localhost/shop", logger: pino({ level: "warn" }) });
  await start({ logger: pino().child({ part: "tasks" }) });
}
