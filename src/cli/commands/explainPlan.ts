import type { Command } from "commander";
import { disconnect } from "../../shared/postgres/client.js";
import { explainTask } from "../../tasks/explain/explainTask.js";
import { readCluster } from "../../tasks/queries/clusterProcesses.js";
import type { Reason } from "../../tasks/explain/waitReasons.js";
import { exitCode } from "../support/exitCodes.js";
import { connectFor, onTable, type OpenTable } from "../support/openTable.js";
import { parseId, withTableOptions, type CommandOptions } from "../support/options.js";
import type { CommandRun } from "../support/run.js";
import { field, printableLine } from "../terminal/escape.js";
import { coloured, type Terminal } from "../terminal/terminal.js";

export function declareExplainPlan(program: Command, run: CommandRun): void {
  const command = program
    .command("explain-plan")
    .alias("explain")
    .description("tell why a task does not run now")
    .argument("<id>", "the task's id", parseId);
  withTableOptions(command).action((id: string, options: CommandOptions) =>
    run((terminal) => explain(terminal, id, options)),
  );
}

async function explain(terminal: Terminal, id: string, options: CommandOptions): Promise<number> {
  const reasons = await onTable(options, "explain-plan", (opened) => findReasons(opened, id));
  if (reasons === null) {
    terminal.note(`pg-task: there is no task ${id}\n`);
    return exitCode.notAll;
  }
  if (options.json === true) {
    terminal.write(`${JSON.stringify({ id, reasons }, null, 2)}\n`);
  } else if (terminal.isTerminal) {
    for (const { text, remedy } of reasons) {
      terminal.write(`${printableLine(text)}\n`);
      if (remedy !== undefined)
        terminal.write(`  ${coloured(terminal, "grey", printableLine(remedy))}\n`);
    }
  } else {
    for (const { code, text, remedy } of reasons) {
      terminal.write(`${[code, text, remedy ?? null].map(field).join("\t")}\n`);
    }
  }
  return 0;
}

/** Null when there is no such task. */
export async function findReasons(opened: OpenTable, id: string): Promise<Reason[] | null> {
  const { client, table, entry, configuration } = opened;
  return await explainTask(client, table, id, {
    entry,
    entries: configuration.entries,
    mostSessions: configuration.parameters["pg_conf.max"],
    leads: () => hasLeader(opened),
    locks: true,
  });
}

/** Null when the control connection cannot be asked. */
async function hasLeader({ configuration }: OpenTable): Promise<boolean | null> {
  const { control, parameters } = configuration;
  try {
    const client = await connectFor(control, "explain-plan");
    try {
      return (await readCluster(client, parameters["pg_conf.name"])).leader !== null;
    } finally {
      await disconnect(client);
    }
  } catch {
    return null;
  }
}
