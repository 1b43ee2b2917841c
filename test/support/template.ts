import { connectManager } from "../../src/manager/loop/connectManager.js";
import { ensureTable } from "../../src/manager/schema/ensureTable.js";
import { taskTable } from "../../src/manager/schema/taskTable.js";
import { loadConfiguration } from "../../src/shared/config/loadConfiguration.js";
import { createLog } from "../../src/shared/log.js";
import { withConnectionTo } from "./connectTo.js";

/** Creates the template database, with a task table created by pg-task. */
export async function createTemplate(url: string): Promise<void> {
  await withConnectionTo(url, async (client) => {
    await client.query("DROP DATABASE IF EXISTS test_template");
    await client.query("CREATE DATABASE test_template");
  });
  const template = new URL(url);
  template.pathname = "/test_template";
  const { entries } = await loadConfiguration({ cwd: "/", env: {}, control: template.href });
  const [entry] = entries;
  if (entry === undefined) throw new Error("a configuration without entries has one");
  const manager = await connectManager(entry);
  const log = createLog({ level: "silent", name: "test", write: () => {} });
  await ensureTable(manager, taskTable(entry.schema, entry.table), entry, log);
  // The databases made from the template are no copies of it.
  await manager.query("DELETE FROM public.task_home");
  await manager.end();
}
