import { Argument, type Command } from "commander";
import type { Entry } from "../../shared/config/types.js";
import { entryNames, tableNames } from "../../shared/config/entryNames.js";
import { completeValuesName, shells, type Shell } from "../definitions/completionScript.js";
import { readBashWord, replaceBashWord } from "../support/bashWord.js";
import { resolveConfiguration } from "../support/resolveConfiguration.js";
import type { RunCommand } from "../support/options.js";
import type { Terminal } from "../terminal/terminal.js";

const kinds = ["table", "entry"] as const;

/**
 * The names come from a file that may be anyone's, and can contain every character. The command therefore ends each with
 * a zero byte, and the scripts must not let a shell evaluate them.
 */
export function registerCompleteValues(program: Command, run: RunCommand): void {
  program
    .command(completeValuesName, { hidden: true })
    .addArgument(new Argument("<shell>").choices(shells))
    .addArgument(new Argument("<kind>").choices(kinds))
    .argument(
      "[words...]",
      "the words of the command line up to the one to complete; bash's with their quotes, and then the end of the last one that readline replaces",
    )
    .action((shell: Shell, kind: (typeof kinds)[number], words: readonly string[]) =>
      run(async (terminal) => {
        const isBash = shell === "bash";
        const plain = isBash ? words.slice(0, -1).map((word) => readBashWord(word).text) : words;
        const names = await readNames(terminal, kind, configIn(plain));
        const replies = isBash ? bashReplies(words.at(-2) ?? "", words.at(-1) ?? "", names) : names;
        terminal.write(replies.map((reply) => `${reply}\0`).join(""));
        return 0;
      }),
    );
}

function configIn(words: readonly string[]): string | undefined {
  const option = words.findLastIndex((word) => word === "-c" || word === "--config" || word.startsWith("--config="));
  const word = words[option];
  return word?.startsWith("--config=") === true ? word.slice("--config=".length) : word && words[option + 1];
}

/** The other shells choose and quote the names themselves. */
function bashReplies(word: string, replaced: string, names: readonly string[]): string[] {
  const typed = readBashWord(word, word.length - replaced.length);
  return names.filter((name) => name.startsWith(typed.text)).map((name) => replaceBashWord(typed, name));
}

/** Returns the values that `--table` or `--entry` may have, without connecting to a server. */
async function readNames(
  { cwd, env }: Terminal,
  kind: (typeof kinds)[number],
  file: string | undefined,
): Promise<readonly string[]> {
  const explained = await resolveConfiguration({
    file,
    cwd,
    env,
    warn: () => {},
    lazySecrets: true,
  });
  const entries = explained?.configuration.entries ?? [];
  // Keys such as `host:5432/…` only repeat what the numbers and databases select.
  const namesOf = (entry: Entry): readonly string[] =>
    kind === "table" ? tableNames(entry) : entryNames(entries, entry).filter((name) => name !== entry.key);
  return [...new Set(entries.flatMap(namesOf))];
}
