import { Argument, type Command } from "commander";
import type { Entry } from "../../shared/config/types.js";
import { entryNames, tableNames } from "../../shared/config/entryNames.js";
import { resolveConfiguration } from "../support/resolveConfiguration.js";
import { configOption, type RunCommand } from "../support/options.js";
import type { Terminal } from "../terminal/terminal.js";

const kinds = ["table", "entry"] as const;

/** The name of the command that the completion scripts call. The help does not list it. */
export const completeValuesName = "complete-values";

export function registerCompleteValues(program: Command, run: RunCommand): void {
  program
    .command(completeValuesName, { hidden: true })
    .addArgument(new Argument("<kind>").choices(kinds))
    .addOption(configOption())
    .action((kind: (typeof kinds)[number], { config }: { readonly config?: string }) =>
      run(async (terminal) => {
        for (const name of await readNames(terminal, kind, config)) terminal.write(`${name}\n`);
        return 0;
      }),
    );
}

/** Returns the values that `--table` or `--entry` may have, without connecting to a server. */
async function readNames(
  { cwd, env }: Terminal,
  kind: (typeof kinds)[number],
  file: string | undefined,
): Promise<ReadonlySet<string>> {
  const explained = await resolveConfiguration({
    file,
    cwd,
    env,
    warn: () => {},
    lazySecrets: true,
  });
  const entries = explained?.configuration.entries ?? [];
  // Shells split words at colons, so keys such as `host:5432/…` cannot be completed.
  const namesOf = (entry: Entry): readonly string[] =>
    kind === "table" ? tableNames(entry) : entryNames(entries, entry).filter((name) => name !== entry.key);
  return new Set(entries.flatMap(namesOf));
}
