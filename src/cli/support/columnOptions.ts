import { Option } from "commander";
import { PgTaskError } from "../../shared/errors.js";
import { columnList, valueKind, type TaskColumn } from "../../shared/taskColumns.js";

export const keyTakenChoices = ["error", "skip"] as const;

const firstOptions: readonly string[] =
  "args plan group max active timeout repeat rule zone key after upon retry backoff sqlstate".split(" ");
const rank = (name: string): number => (firstOptions.includes(name) ? firstOptions.indexOf(name) : firstOptions.length);

const optionColumns = columnList
  .filter(({ name, by }) => by === "producer" && name !== "input")
  .toSorted((one, other) => rank(one.name) - rank(other.name));
const booleanColumns = optionColumns.filter(({ type }) => type === "boolean");
const valueColumns = optionColumns.filter(({ type }) => type !== "boolean");

const meaningOf = (column: TaskColumn): string =>
  valueKind(column) === "time" ? `${column.meaning}, in PostgreSQL's time syntax` : column.meaning;

/** What `--help` calls the value of a column whose description does not say it. */
const valueNames: Readonly<Record<ReturnType<typeof valueKind>, string>> = {
  id: "id",
  ids: "ids",
  number: "n",
  interval: "interval",
  time: "time",
  flag: "",
  char: "char",
  text: "text",
  list: "texts",
  json: "json",
};

export const columnOptions = (): Option[] => [
  ...valueColumns.map(
    (column) => new Option(`--${column.name} <${column.value ?? valueNames[valueKind(column)]}>`, meaningOf(column)),
  ),
  ...booleanColumns.flatMap(({ name, meaning }) => [
    new Option(`--${name}`, meaning),
    new Option(`--no-${name}`, `the opposite of --${name}`),
  ]),
];

export const optionValues = (options: Readonly<Record<string, unknown>>): [string, string][] =>
  [...valueColumns, ...booleanColumns].flatMap(({ name, type }): [string, string][] => {
    const value = options[name];
    return typeof value === "string" || typeof value === "boolean"
      ? [[name, type.endsWith("[]") ? toArray(String(value)) : String(value)]]
      : [];
  });

/** `7,8` becomes `{7,8}`. A value that is no such list stays as it is. */
const toArray = (value: string): string => (/^\s*[-!\w]+(\s*,\s*[-!\w]+)*\s*$/.test(value) ? `{${value}}` : value);

export function parseSet(text: string, previous: ReadonlyMap<string, string> = new Map()): ReadonlyMap<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw new PgTaskError("USAGE", `expected --set column=value, got ${JSON.stringify(text)}`);
  const name = text.slice(0, at);
  if (previous.has(name)) throw new PgTaskError("USAGE", `expected --set ${name}=… once, got it more than once`);
  return new Map([...previous, [name, text.slice(at + 1)]]);
}
