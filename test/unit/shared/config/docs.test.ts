import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { allowedValues, entryKeys } from "../../../../src/shared/config/describeAllowedValues.js";
import { jsonSchemaText } from "../../../../src/shared/config/jsonSchema.js";
import {
  fileParameters,
  maxInt,
  parameters,
  type Parameter,
} from "../../../../src/shared/config/parameters.js";
import type { FileParameters } from "../../../../src/shared/config/types.js";
import { defaultParameters } from "../../../../src/shared/config/parameterValues.js";
import { projectPath } from "../../../support/project.js";

const root = projectPath();
const docs = readFileSync(join(root, "docs/configuration.md"), "utf8");

/** The cells of each row of the table under a heading. */
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
    parameter.defaultText ?? `\`${String(parameter.default)}\``,
    levels.join(", "),
    meaning,
  ];
}

void test("docs/configuration.md lists every parameter as the table has it", () => {
  assert.deepEqual(tableUnder("## Parameters"), parameters.map(documented));
});

void test("docs/configuration.md lists every key of an entry", () => {
  assert.deepEqual(
    tableUnder("## Entries"),
    entryKeys.map(({ name, allowed, meaning }) => [name, allowed, meaning]),
  );
});

void test("pg_task.schema.json is what `npm run schema` writes", () => {
  assert.equal(readFileSync(join(root, "pg_task.schema.json"), "utf8"), jsonSchemaText());
});

type NameInTable = Exclude<
  Extract<(typeof parameters)[number], { levels: readonly [string, ...string[]] }>["name"],
  "pg_task.json" | "pg_task.id"
>;

// The compiler refuses these lines when a name is in one of the two only.
const toType = (name: NameInTable): keyof FileParameters => name;
const toTable = (name: keyof FileParameters): NameInTable => name;

void test("the type of the file's parameters and their table have the same names", () => {
  assert.equal(toTable(toType("pg_task.sleep")), "pg_task.sleep");
  const names = Object.keys(defaultParameters());
  assert.deepEqual(
    names,
    parameters.map(({ name }) => name).filter((name) => !/^pg_task\.(json|id)$/.test(name)),
  );
});

void test("each default is of its parameter's own kind", () => {
  const kinds: Readonly<Record<string, string>> = {
    bool: "boolean",
    int: "number",
    size: "number",
  };
  const values = defaultParameters();
  for (const parameter of fileParameters()) {
    assert.equal(typeof values[parameter.name], kinds[parameter.type] ?? "string", parameter.name);
  }
  assert.equal(values["pg_task.output"], 64 * 1024 * 1024);
});

void test("no two parameters share a name or alias, and all say what they allow", () => {
  const names = parameters.flatMap((parameter: Parameter) => [
    parameter.name,
    ...(parameter.alias === undefined ? [] : [parameter.alias]),
  ]);
  assert.equal(new Set(names).size, names.length);
  for (const parameter of parameters) assert.notEqual(allowedValues(parameter), "");
});
