import type { TaskTable } from "../../manager/schema/taskTable.js";
import { settingNumber, settingsMade } from "../../shared/config/serverSettings.js";
import type { Entry } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import { readPauses } from "../commands/pauses.js";
import { readConnections, readManager } from "../queries/clusterProcesses.js";
import { countSessions, entriesOn, type PlacedEntry } from "../queries/executorSessions.js";
import { readRowLock, readSituation } from "./taskSituation.js";
import { readUserTriggers } from "../queries/userTriggers.js";
import { whyNot, type Reason } from "./waitReasons.js";

/** Connections that pg-task leaves to others. */
const leftToOthers = 10;

/**
 * Why a task does not run now; null when there is no such task.
 *
 * @param around.entries all of the configuration: those on the server of `around.entry` share its sessions
 * @param around.mostSessions of one process (`pg_conf.max`)
 * @param around.leads whether any pg-task leads the cluster, null when that cannot be asked; only asked
 * when no manager works on the table
 * @param around.locks whether to look for who has the row locked; for that it is locked for a moment
 */
export async function explainTask(
  client: Client,
  table: TaskTable,
  id: string,
  around: {
    readonly entry: Pick<Entry, "fixed" | "parameters" | "target">;
    readonly entries: readonly PlacedEntry[];
    readonly mostSessions: number;
    readonly leads: () => Promise<boolean | null>;
    readonly locks: boolean;
  },
): Promise<Reason[] | null> {
  const situation = await readSituation(client, table, id);
  if (situation === null) return null;
  const { most, taken } = await readConnections(client);
  const manager = await readManager(client, table);
  return whyNot(situation, {
    pauses: await readPauses(client, table),
    locked:
      around.locks && situation.state === "PLAN" ? await readRowLock(client, table, id) : null,
    triggers: await readUserTriggers(client, table),
    manager: manager !== null,
    leader: manager === null ? await around.leads() : true,
    mostRuns: await mostRuns(client, around.entry),
    mostSessions: around.mostSessions,
    allRun: (await countSessions(client, entriesOn(around.entry.target, around.entries))).running,
    room: most - leftToOthers - taken,
  });
}

/** As the table's manager goes by it: the entry, its role or database, the file. */
async function mostRuns(
  client: Client,
  { fixed, parameters }: Pick<Entry, "fixed" | "parameters">,
): Promise<number> {
  if (fixed.run !== undefined) return fixed.run;
  const made = (await settingsMade(client, ["pg_task.run"])).get("pg_task.run");
  const value = made === undefined ? null : settingNumber("pg_task.run", made);
  return value ?? parameters["pg_task.run"];
}
