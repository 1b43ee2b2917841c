import { jsonText } from "../../shared/printable.js";
import { writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { allowedValues, entryKeys } from "../../shared/config/describeAllowedValues.js";
import { fileParameters } from "../../shared/config/parameters.js";
import type { Parameter } from "../../shared/config/parameterTable.js";
import { defaultFileName } from "../../shared/config/findSource.js";
import { PgTaskError, systemErrorCode } from "../../shared/errors.js";
import { explainSystemError } from "../../shared/systemErrors.js";
import type { Terminal } from "../terminal/terminal.js";

interface InitOptions {
  readonly config?: string;
  readonly json?: true;
}

export async function init(terminal: Terminal, options: InitOptions): Promise<number> {
  const file = resolve(terminal.cwd, options.config ?? defaultFileName);
  try {
    // Only the owner can read the file, because it can contain a password.
    await writeFile(file, formatInitialFile(), { flag: "wx", mode: 0o600 });
  } catch (error) {
    if (systemErrorCode(error) === "EEXIST") {
      throw new PgTaskError("USAGE", `${file} already exists and was not changed`);
    }
    throw new PgTaskError("USAGE", `cannot write the file ${file}: ${explainSystemError(error)}`, {
      cause: error,
    });
  }
  if (options.json === true) terminal.write(`${jsonText({ file }, 0)}\n`);
  else terminal.write(`wrote ${file}: edit it, then run pg-task check\n`);
  return 0;
}

function formatInitialFile(): string {
  const parameters = fileParameters.flatMap((parameter) => [
    `  // ${parameter.meaning}: ${allowedValues(parameter)}`,
    `  // ${JSON.stringify(parameter.name)}: ${JSON.stringify(exampleValue(parameter))},`,
  ]);
  const keys = entryKeys.map(({ name, meaning, allowed }) => `  //   ${name}: ${meaning} (${allowed})`);
  return `${[
    "// pg-task's configuration. Lines that begin with // are comments; parameters that are commented out",
    "// show their defaults. Run pg-task check to see what the file means; it changes nothing.",
    "{",
    "  // lets editors complete names and mark mistakes",
    '  "$schema": "./node_modules/pg-task/pg_task.schema.json",',
    "",
    "  // The control connection: used by the supervisor, and by entries that name no other server.",
    "  // Without it: DATABASE_URL, then the PG* variables, then libpq's defaults.",
    '  // "url": "postgresql://postgres@localhost/postgres",',
    "",
    ...parameters,
    "",
    "  // One entry for each task table. Default: a single entry for the control connection's database",
    "  // and user. Keys of an entry:",
    ...keys,
    "  // and every pg_task. parameter above, as a default of its table.",
    '  "pg_task.json": [',
    '    // { "data": "shop" },',
    '    // { "data": "shop", "user": "mailer", "schema": "mail", "table": "outbox", "sleep": 100 }',
    "  ]",
    "}",
  ].join("\n")}\n`;
}

/** A secret has no default. */
const exampleValue = ({ name, type, default: value }: Parameter): unknown =>
  type === "secret" ? `a-long-random-string-for-${name}` : value;
