import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { jobsSchemaText } from "../../../../src/cli/support/jobsFile.js";
import { allowedValues, entryKeys } from "../../../../src/shared/config/describeAllowedValues.js";
import { jsonSchemaText } from "../../../../src/shared/config/fileSchema.js";
import { fileParameters } from "../../../../src/shared/config/parameters.js";
import { parameters, type Parameter } from "../../../../src/shared/config/parameterTable.js";
import { defaultParameters } from "../../../../src/shared/config/parameters.js";
import { maxInt } from "../../../../src/shared/postgres/serverLimits.js";
import { projectPath } from "../../../support/project.js";

const root = projectPath();
const docs = readFileSync(join(root, "docs/configuration.md"), "utf8");

/** Returns the cells of each row of the table under a heading. */
function tableUnder(heading: string): string[][] {
  const section = docs.split(`\n${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const lines = section.split("\n").filter((line) => line.startsWith("|"));
  return lines.slice(2).map((line) =>
    line
      .split(/(?<!\\)\|/)
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

function range({ type, min, max, unit, aboveMin }: Parameter): string {
  const size = unit === undefined || type === "size" ? "" : ` ${unit}`;
  if (type === "interval") return aboveMin ? " > 0" : " ≥ 0";
  if (type !== "int") return size;
  const from = min === undefined || min < 0 ? "" : ` ≥ ${min}`;
  return `${size}${from}${max === maxInt ? "" : `, ≤ ${max}`}`;
}

function documented(parameter: Parameter): string[] {
  const { name, alias, type, levels, meaning } = parameter;
  return [
    alias === undefined ? name : `${name} (alias ${alias})`,
    `${type}${range(parameter)}`,
    parameter.defaultText ??
      `\`${typeof parameter.default === "object" ? JSON.stringify(parameter.default) : parameter.default}\``,
    levels.join(", "),
    meaning,
  ];
}

void test("the parameter table of docs/configuration.md matches the code", () => {
  assert.deepEqual(tableUnder("## Parameters"), parameters.map(documented));
});

void test("the entry table of docs/configuration.md matches the code", () => {
  assert.deepEqual(
    tableUnder("## Entries"),
    entryKeys.map(({ name, allowed, meaning }) => [name, allowed, meaning]),
  );
});

void test("pg_task.schema.json is up to date", () => {
  assert.equal(readFileSync(join(root, "pg_task.schema.json"), "utf8"), jsonSchemaText());
});

void test("pg_task.jobs.schema.json is up to date", () => {
  assert.equal(readFileSync(join(root, "pg_task.jobs.schema.json"), "utf8"), jobsSchemaText());
});

void test("every parameter has a default, in table order", () => {
  assert.deepEqual(
    Object.keys(defaultParameters()),
    parameters.map(({ name }) => name).filter((name) => name !== "pg_task.json"),
  );
});

void test("each default has the type of its parameter", () => {
  const kinds: Readonly<Record<string, string>> = {
    bool: "boolean",
    int: "number",
    size: "number",
    weights: "object",
    webhooks: "object",
  };
  const values = defaultParameters();
  for (const parameter of fileParameters) {
    assert.equal(typeof values[parameter.name], kinds[parameter.type] ?? "string", parameter.name);
  }
  assert.equal(values["pg_task.output"], 64 * 1024 * 1024);
});

void test("names and aliases are unique, and every parameter describes its allowed values", () => {
  const names = parameters.flatMap((parameter: Parameter) => [
    parameter.name,
    ...(parameter.alias === undefined ? [] : [parameter.alias]),
  ]);
  assert.equal(new Set(names).size, names.length);
  for (const parameter of parameters) assert.notEqual(allowedValues(parameter), "");
});
