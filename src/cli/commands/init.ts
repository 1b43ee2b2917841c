import { writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import type { Command } from "commander";
import { allowedValues, entryKeys } from "../../shared/config/describeAllowedValues.js";
import { errorCode } from "../../shared/config/errorCode.js";
import { fileParameters, type Parameter } from "../../shared/config/parameters.js";
import { defaultFileName } from "../../shared/config/findSource.js";
import { PgTaskError } from "../../shared/errors.js";
import { configOption } from "../support/options.js";
import type { CommandRun } from "../support/run.js";
import type { Terminal } from "../terminal/terminal.js";

interface InitOptions {
  readonly config?: string;
  readonly json?: true;
}

export function declareInit(program: Command, run: CommandRun): void {
  program
    .command("init")
    .description("write a configuration file that explains itself; never overwrites one")
    .addOption(configOption("file to write (default: ./pg_task.json)"))
    .option("--json", "print JSON")
    .action((options: InitOptions) => run((terminal) => init(terminal, options)));
}

async function init(terminal: Terminal, options: InitOptions): Promise<number> {
  const file = resolve(options.config ?? defaultFileName);
  try {
    // It may get a password: for nobody else to read.
    await writeFile(file, initialText(), { flag: "wx", mode: 0o600 });
  } catch (error) {
    if (errorCode(error) === "EEXIST") {
      throw new PgTaskError(
        "USAGE",
        `${file}: expected no such file yet, and it is there: it stays as it is`,
      );
    }
    const words = error instanceof Error ? error.message : String(error);
    throw new PgTaskError("USAGE", `expected a file that can be written, got: ${words}`, {
      cause: error,
    });
  }
  if (options.json === true) terminal.write(`${JSON.stringify({ file })}\n`);
  else terminal.write(`wrote ${file}: change what you need, then pg-task check\n`);
  return 0;
}

/** Every parameter with its meaning and default, as comments; what counts is what a reader uncomments. */
export function initialText(): string {
  const parameters = fileParameters().flatMap((parameter) => [
    `  // ${parameter.meaning}: ${allowedValues(parameter)}`,
    `  // ${JSON.stringify(parameter.name)}: ${JSON.stringify(shownValue(parameter))},`,
  ]);
  const keys = entryKeys.map(
    ({ name, meaning, allowed }) => `  //   ${name}: ${meaning} (${allowed})`,
  );
  return `${[
    "// pg-task's configuration. Lines that begin with // are comments; what is commented out below has",
    "// the value that it shows. pg-task check says what the file means, and changes nothing.",
    "{",
    "  // an editor that knows the schema completes names and marks mistakes",
    '  "$schema": "./node_modules/pg-task/pg_task.schema.json",',
    "",
    "  // The control connection: the supervisor's, and where entries go unless they say otherwise.",
    "  // Without it: DATABASE_URL, then the PG* variables, then libpq's defaults.",
    '  // "url": "postgresql://postgres@localhost/postgres",',
    "",
    ...parameters,
    "",
    "  // One entry for each task table. Without any there is one, for the control connection's own",
    "  // database and user. Keys of an entry:",
    ...keys,
    "  // and every parameter above whose name begins with pg_task., as the default of its table.",
    '  "pg_task.json": [',
    '    // { "data": "shop" },',
    '    // { "data": "shop", "user": "mailer", "schema": "mail", "table": "outbox", "sleep": 100 }',
    "  ]",
    "}",
  ].join("\n")}\n`;
}

/** A secret has no default: an example stands for it. */
const shownValue = ({ type, default: value }: Parameter): unknown =>
  type === "secret" ? "a long random text" : value;
