import { createCronFacade } from "../../manager/schema/facadeCron.js";
import { jsonText, printableLine } from "../../shared/printable.js";
import { withTable } from "../support/openTable.js";
import type { CommandOptions } from "../support/options.js";
import type { Terminal } from "../terminal/terminal.js";

export async function facade(terminal: Terminal, name: string, options: CommandOptions): Promise<number> {
  return await withTable(terminal, options, "facade", async ({ client, table }) => {
    await createCronFacade(client, table);
    if (options.json === true) terminal.write(`${jsonText({ table: table.qualified, facade: name })}\n`);
    else
      terminal.write(
        `the functions and views of schema ${name} now plan and show jobs of ${printableLine(table.qualified)}\n`,
      );
    return 0;
  });
}
