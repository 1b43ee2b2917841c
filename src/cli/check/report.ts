import { fileParameters } from "../../shared/config/parameters.js";
import { maskParameters, maskTarget } from "../../shared/config/maskSecrets.js";
import type { ExplainedConfiguration } from "../../shared/config/loadConfiguration.js";
import type { FileParameters } from "../../shared/config/types.js";
import { describeTarget } from "../../shared/postgres/target/describeTarget.js";
import { toReport, type ErrorReport, type PgTaskError } from "../../shared/errors.js";
import type { ControlFindings, EntryFindings, Finding } from "./server.js";

/** Everything `check` found out; holds no secret. */
export interface CheckReport {
  /** Absolute path, null when there is no file. */
  readonly file: string | null;
  readonly control: {
    readonly from: string;
    readonly url: string;
    /** Masked; null when there is none. */
    readonly password: string | null;
    readonly sslmode: string;
    readonly version: string | null;
    readonly error: ErrorReport | null;
  };
  readonly parameters: Readonly<Record<string, ParameterReport>>;
  readonly entries: readonly EntryReport[];
  readonly warnings: readonly string[];
  readonly exitCode: number;
}

/** A parameter's value and who gives it; "server" is the control database, its role or its server. */
export interface ParameterReport {
  readonly value: unknown;
  readonly from: "file" | "default" | "server";
}

export interface EntryReport {
  readonly key: string;
  readonly url: string;
  readonly user: string;
  readonly database: string;
  readonly schema: string;
  readonly table: string;
  readonly create: boolean;
  readonly password: string | null;
  /** The parameters the entry carries itself. */
  readonly parameters: Partial<FileParameters>;
  /** Those that its role, database or server has set, as it has them. */
  readonly settings: Readonly<Record<string, string>>;
  readonly objects: readonly Finding[];
  /** Names of the groups that are paused, null for the whole table. */
  readonly paused: readonly (string | null)[];
  readonly error: ErrorReport | null;
}

const nothingFound: EntryFindings = {
  findings: [],
  paused: [],
  place: null,
  settings: {},
  warnings: [],
  error: null,
};

/** Puts together what is configured and what the servers said. */
export function makeReport(
  explained: ExplainedConfiguration,
  control: ControlFindings | PgTaskError,
  inspected: readonly EntryFindings[],
  warnings: readonly string[],
): CheckReport {
  const { configuration, given } = explained;
  const error = control instanceof Error ? control : null;
  const found = control instanceof Error ? null : control;
  const target = maskTarget(configuration.control);
  return {
    file: configuration.file,
    control: {
      from: explained.controlFrom,
      url: describeTarget(target),
      password: target.password ?? null,
      sslmode: target.sslmode,
      version: found?.version ?? null,
      error: error === null ? null : toReport(error),
    },
    parameters: parameterValues(configuration.parameters, given, found?.settings),
    entries: configuration.entries.map((entry, index) => {
      const {
        findings,
        paused,
        place,
        settings,
        error: failure,
      } = inspected[index] ?? nothingFound;
      const shown = maskTarget(entry.target);
      return {
        key: entry.key,
        url: describeTarget(shown),
        user: shown.user,
        database: shown.database,
        schema: place?.schema ?? entry.schema,
        table: place?.table ?? entry.table,
        create: entry.create,
        password: shown.password ?? null,
        parameters: explained.entriesGiven[index] ?? {},
        settings,
        objects: findings,
        paused,
        error: failure === null ? null : toReport(failure),
      };
    }),
    warnings: [
      ...warnings,
      ...(found?.warnings ?? []),
      ...inspected.flatMap((entry) => entry.warnings),
    ],
    exitCode: exitCode(error, inspected),
  };
}

/** Each parameter's value and where it is from. */
export function parameterValues(
  all: FileParameters,
  given: Partial<FileParameters>,
  made: Partial<FileParameters> = {},
): CheckReport["parameters"] {
  const values = maskParameters(all);
  return Object.fromEntries(
    fileParameters().map(({ name }) => {
      if (made[name] !== undefined) return [name, { value: made[name], from: "server" }];
      return [name, { value: values[name], from: given[name] === undefined ? "default" : "file" }];
    }),
  );
}

/** The control connection's failure first, then the entries'; 4 when something can't be made. */
function exitCode(control: PgTaskError | null, inspected: readonly EntryFindings[]): number {
  if (control !== null) return control.exitCode;
  const failed = inspected.find(({ error }) => error !== null)?.error;
  if (failed) return failed.exitCode;
  const lacking = inspected.some(({ findings }) =>
    findings.some(({ state }) => state === "missing" || state === "not allowed"),
  );
  return lacking ? 4 : 0;
}

/** The report as text for a reader; what failed on the control connection comes last. */
export function reportText(report: CheckReport): string {
  const { control } = report;
  const version = control.version === null ? "" : `, PostgreSQL ${control.version}`;
  const lines = [
    `configuration  ${report.file ?? "no file"}`,
    `control        ${control.url}${password(control.password)} sslmode ${control.sslmode} (${control.from})${version}`,
    ...report.warnings.map((warning) => `warning        ${warning}`),
    "",
    ...parametersText(report.parameters),
    "",
    "entries",
    ...report.entries.flatMap(entryText),
    ...(control.error === null ? [] : ["", `control connection: ${control.error.message}`]),
  ];
  return `${lines.join("\n")}\n`;
}

/** The parameters, one to a line. */
export function parametersText(values: CheckReport["parameters"]): string[] {
  const rows = fileParameters().map(({ name, unit }) => {
    const { value, from } = values[name] ?? { value: null, from: "default" };
    return [name, `${JSON.stringify(value)}${unit === undefined ? "" : ` ${unit}`}`, from];
  });
  return ["parameters", ...table(rows)];
}

function entryText(entry: EntryReport): string[] {
  const own = Object.entries(entry.parameters).map(([name, value]) => [
    name,
    JSON.stringify(value),
    "entry",
  ]);
  const made = Object.entries(entry.settings).map(([name, value]) => [
    name,
    JSON.stringify(value),
    "server",
  ]);
  const objects = entry.objects.map(({ what, name, state, why }) => [
    what,
    printable(name),
    why === undefined ? state : `${state}: ${why}`,
  ]);
  // Of what was not looked at, it says what it is called.
  const looked = new Set<string>(entry.objects.map(({ what }) => what));
  const named = [
    ["role", printable(entry.user), ""],
    ["database", printable(entry.database), ""],
    ["schema", printable(entry.schema), ""],
    ["table", printable(entry.table), ""],
  ].filter(([what]) => !looked.has(what ?? ""));
  const parts = [...objects, ...named];
  const lines = table([...parts, ...own, ...made]).map((line) => `  ${line}`);
  return [
    `  ${entry.url}${password(entry.password)}`,
    ...lines.slice(0, parts.length),
    ...entry.paused.map((group) =>
      group === null ? "    paused: the whole table" : `    paused: group ${JSON.stringify(group)}`,
    ),
    ...lines.slice(parts.length),
    ...(entry.error === null ? [] : [`    error: ${entry.error.message}`]),
  ];
}

/** A name on one line: control characters as JSON writes them. */
function printable(name: string): string {
  return name.replaceAll(/\p{Cc}/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

function password(masked: string | null): string {
  return masked === null ? "" : ` password ${masked}`;
}

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = [0, 1].map((column) =>
    Math.max(0, ...rows.map((row) => (row[column] ?? "").length)),
  );
  return rows.map((row) =>
    `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")}`.trimEnd(),
  );
}
