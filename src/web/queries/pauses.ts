import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../../manager/table.js";
import type { Summary } from "../schemas.js";
import { isoTime } from "./columns.js";

/** Which groups, or with null the whole table, do not start anything now. */
export async function pauses(client: Client, table: TaskTable): Promise<Summary["paused"]> {
  const { rows } = await client.query<Summary["paused"][number]>(
    `SELECT "group", ${isoTime("since")}, reason FROM ${table.pauses} ORDER BY "group" NULLS FIRST LIMIT 100`,
  );
  return rows;
}
