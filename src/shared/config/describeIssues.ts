import type { z } from "zod";
import { allowedValues, entryKeys } from "./describeAllowedValues.js";
import { entryParameters, fileParameters, findParameter } from "./parameters.js";
import { secretParameters } from "./parameters.js";
import { describeValue } from "../describeValue.js";
import { maskConnectionString } from "../postgres/connectionString/maskConnectionString.js";
import { nearestName } from "../nearestName.js";
import type { ParameterName } from "./parameterTable.js";
import { webhookKeys } from "./webhooks.js";
import { mask } from "../logRedaction.js";

type Path = readonly PropertyKey[];

const webhooks = "pg_http.webhooks" satisfies ParameterName;

/** Formats a path, for example `pg_task.json[2].sleep`. */
export function formatPath(path: Path): string {
  return path
    .map((step, index) => {
      if (typeof step === "number") return `[${step}]`;
      const name = String(step);
      if (index === 0) return name;
      return name.includes(".") ? `["${name}"]` : `.${name}`;
    })
    .join("");
}

/** One line for each problem: its path, what is allowed there, and what was given. Secrets are masked. */
export function describeIssues(issues: readonly z.core.$ZodIssue[], content: unknown): string[] {
  const lines = issues.flatMap((issue) => {
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => unknownKey([...issue.path, key]));
    }
    const value = valueAt(content, issue.path);
    const prefix = issue.path.length === 0 ? "" : `${formatPath(issue.path)}: `;
    return [`${prefix}expected ${allowedAt(issue.path)}, got ${valueText(value, issue.path)}`];
  });
  // A value that breaks two rules produces the same line twice.
  return [...new Set(lines)];
}

function unknownKey(path: Path): string {
  const key = String(path.at(-1));
  if (path[0] === webhooks && path.length > 1)
    return `${formatPath(path)}: unknown key, expected one of ${Object.keys(webhookKeys).join(", ")}`;
  // Only entries are elements of an array.
  const inEntry = path.some((step) => typeof step === "number");
  const known = inEntry
    ? [...entryKeys.map(({ name }) => name), ...entryParameters.map(({ name }) => name)]
    : ["url", "pg_task.json", ...fileParameters.map(({ name }) => name)];
  const other = inEntry ? otherWords.get(key) : undefined;
  const near = known.find((name) => shortName(name) === key) ?? other ?? nearestName(key, known);
  const elsewhere = inEntry && key.startsWith("pg_") && findParameter(key) !== undefined;
  const hint =
    hints.get(key) ??
    (elsewhere
      ? `"${key}" belongs at the top level, next to "pg_task.json", not in an entry`
      : near === undefined
        ? `expected one of ${known.join(", ")}`
        : `expected a known key, perhaps "${near}"`);
  return `${formatPath(path)}: unknown key, ${hint}`;
}

/** The keys of an entry by the words that other programs use for them. */
const otherWords: ReadonlyMap<string, string> = new Map([
  ["database", "data"],
  ["dbname", "data"],
  ["db", "data"],
  ["role", "user"],
  ["username", "user"],
]);

const shortName = (name: string): string => name.replace(/^pg_\w+\./, "");

const noSpi = "not supported: tasks run over connections, not by SPI inside the server; remove it";

const hints: ReadonlyMap<string, string> = new Map([
  ["pg_task.id", "pg_task.id is the running task's id: read only, and in sessions only"],
  ["pg_task.data", 'expected "data" in an entry; "pg_task.data" belongs at the top level, next to "pg_task.json"'],
  ["pg_task.user", 'expected "user" in an entry; "pg_task.user" belongs at the top level, next to "pg_task.json"'],
  ["pg_task.json", '"pg_task.json" belongs only at the top level of the file'],
  ["spi", noSpi],
  ["pg_task.spi", noSpi],
  ["pg_task.oid", "not supported: name the table by pg_task.schema and pg_task.table"],
]);

function allowedAt(path: Path): string {
  const key = path.findLast((step): step is string => typeof step === "string");
  if (path[0] === webhooks && path.length > 1) return allowedInWebhook(path);
  if (typeof path.at(-1) === "number") return 'an entry, an object such as {"data": "name"}';
  if (key === undefined) return "an object with parameters, or an array of entries";
  const name = ["pg_task.weights", ...secretKeys].find((outer) => path.includes(outer)) ?? key;
  const entryKey = entryKeys.find(({ name: known }) => known === name);
  if (entryKey !== undefined) return entryKey.allowed;
  const parameter = findParameter(name);
  return parameter === undefined ? "a string" : allowedValues(parameter);
}

function allowedInWebhook([, , key]: Path): string {
  const allowed = Object.entries(webhookKeys).find(([name]) => name === key)?.[1];
  return allowed ?? 'an object such as {"url": "https://example.com/hook", "secret": {"env": "NAME"}}';
}

function valueAt(content: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (value, step) => (typeof value === "object" && value !== null ? Reflect.get(value, step) : undefined),
    content,
  );
}

const secretKeys = ["password", "secret", ...secretParameters];

function valueText(value: unknown, path: Path): string {
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return describeValue(value);
  if (secretKeys.some((secret) => path.includes(secret))) {
    if (value === "") return "an empty string";
    const length = typeof value === "string" && !path.includes("password") ? ` of ${value.length} characters` : "";
    return `a ${typeof value} (${mask})${length}`;
  }
  // A program can give values that JSON does not have.
  if (typeof value !== "string") return describeValue(value);
  // The string is not a valid URL, so a password can be in any part of it. No part of it is shown.
  if (path.at(-1) === "url") return value === "" ? "an empty string" : `another string (${mask})`;
  const masked = /[@=]|:\/\//.test(value) ? maskConnectionString(value) : value;
  return JSON.stringify(masked.length > 60 ? `${masked.slice(0, 60)}…` : masked);
}
