import type { z } from "zod";
import { allowedValues, entryKeys } from "./describeAllowedValues.js";
import { nearest } from "./editDistance.js";
import { entryParameters, fileParameters, findParameter } from "./parameters.js";
import { maskUrl } from "../postgres/target/parseUrl.js";

type Path = readonly PropertyKey[];

/** Writes a path as in `pg_task.json[2].sleep`. */
export function pathText(path: Path): string {
  return path
    .map((step, index) => {
      if (typeof step === "number") return `[${step}]`;
      const name = String(step);
      if (index === 0) return name;
      return name.includes(".") ? `["${name}"]` : `.${name}`;
    })
    .join("");
}

/**
 * One line for each thing that is wrong with a file's content: path, what is expected, what is
 * there. Values that are secret, or may hold one, are not repeated.
 */
export function describeIssues(issues: readonly z.core.$ZodIssue[], content: unknown): string[] {
  const lines = issues.flatMap((issue) => {
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => unknownKey([...issue.path, key]));
    }
    const value = valueAt(content, issue.path);
    const prefix = issue.path.length === 0 ? "" : `${pathText(issue.path)}: `;
    return [`${prefix}expected ${allowedAt(issue.path)}, got ${valueText(value, issue.path)}`];
  });
  // Two rules broken by one value say the same.
  return [...new Set(lines)];
}

/** Where something is told from the keys above it: behind an array's index comes an entry. */
function isInEntry(path: Path): boolean {
  return path.some((step) => typeof step === "number");
}

function unknownKey(path: Path): string {
  const key = String(path.at(-1));
  const where = isInEntry(path);
  const known = where
    ? [...entryKeys.map(({ name }) => name), ...entryParameters().map(({ name }) => name)]
    : ["url", "pg_task.json", ...fileParameters().map(({ name }) => name)];
  const near = known.find((name) => shortName(name) === key) ?? nearest(key, known);
  const elsewhere = where && key.startsWith("pg_") && findParameter(key) !== undefined;
  const hint =
    reasons.get(key) ??
    (elsewhere
      ? `expected "${key}" beside "pg_task.json", not in an entry`
      : near === undefined
        ? `expected one of ${known.join(", ")}`
        : `expected a known key, perhaps "${near}"`);
  return `${pathText(path)}: unknown key, ${hint}`;
}

/** A parameter's name as it stands in an entry or names a column. */
const shortName = (name: string): string => name.replace(/^pg_\w+\./, "");

const noSpi =
  "expected it nowhere: tasks run over connections here, not by SPI in a process of the server's, so leave it out";

/** Keys that exist, elsewhere. */
const reasons: ReadonlyMap<string, string> = new Map([
  ["pg_task.id", "expected it in sessions only: pg_task.id is the running task's id and read only"],
  ["pg_task.data", 'expected "data" in an entry, and "pg_task.data" beside "pg_task.json"'],
  ["pg_task.user", 'expected "user" in an entry, and "pg_task.user" beside "pg_task.json"'],
  ["pg_task.json", 'expected "pg_task.json" at the top of the file only'],
  ["spi", noSpi],
  ["pg_task.spi", noSpi],
  [
    "pg_task.oid",
    "expected it nowhere: it is the extension's own, here pg_task.schema and pg_task.table say which table it is",
  ],
]);

function allowedAt(path: Path): string {
  const key = path.findLast((step): step is string => typeof step === "string");
  if (key === undefined) {
    return isInEntry(path)
      ? 'an entry, an object such as {"data": "name"}'
      : "an object with parameters, or an array of entries";
  }
  if (typeof path.at(-1) === "number") return 'an entry, an object such as {"data": "name"}';
  const name = ["password", "pg_http.token"].find((secret) => path.includes(secret)) ?? key;
  const own = entryKeys.find((entryKey) => entryKey.name === name);
  if (own !== undefined) return own.allowed;
  const parameter = findParameter(name);
  return parameter === undefined ? "a text" : allowedValues(parameter);
}

function valueAt(content: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (value, step) =>
      typeof value === "object" && value !== null ? Reflect.get(value, step) : undefined,
    content,
  );
}

/** A value for a message: short, and without what may be secret. */
function valueText(value: unknown, path: Path): string {
  if (value === null) return "null";
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  if (path.includes("password") || path.includes("pg_http.token"))
    return value === "" ? "an empty text" : `a ${typeof value} (***)`;
  if (typeof value !== "string") return JSON.stringify(value);
  // Whatever it is, it is likely to have a password in it.
  if (path.at(-1) === "url") return value === "" ? "an empty text" : "another text (***)";
  const masked = maskUrl(value).replace(/(password\s*=\s*)('[^']*'|\S+)/gi, "$1***");
  return JSON.stringify(masked.length > 60 ? `${masked.slice(0, 60)}…` : masked);
}
