import { logLevels, maxInt, type Parameter } from "./parameters.js";

/** Says in words which values a parameter takes: "a whole number of ms from 1 to 2147483647". */
export function allowedValues(parameter: Parameter): string {
  const { type } = parameter;
  switch (type) {
    case "bool":
      return "true or false";
    case "int":
    case "bigint": {
      const unit = parameter.unit === undefined ? "" : ` of ${parameter.unit}`;
      return `a whole number${unit} from ${parameter.min ?? 0} to ${parameter.max ?? maxInt}`;
    }
    case "interval": {
      const bound = parameter.aboveMin ? "above 0" : "not below 0";
      return `an interval ${bound} as PostgreSQL writes it, such as "1 hour" or "90 sec"`;
    }
    case "char":
      return "one ASCII character, or an empty string for none";
    case "text":
      return parameter.min === 1 ? "a text that is not empty" : "a text";
    case "name":
      return "a name of 1 to 63 bytes";
    case "expression":
      return "an SQL expression as text";
    case "size":
      return `a whole number of bytes from ${parameter.min ?? 0} to ${parameter.max ?? maxInt}, or a text with kB, MB or GB such as "64MB"`;
    case "level":
      return `one of ${logLevels.map((level) => `"${level}"`).join(", ")}`;
    case "listen":
      return 'a text "HOST:PORT" or ":PORT", port 0 for a free one, or an empty text for off';
    case "secret":
      return 'a text, or {"env": "NAME"} for the value of an environment variable';
    case "json":
      return "an array of entries";
    default:
      return type satisfies never;
  }
}

/** A key that stands in an entry under its short name. */
export interface EntryKey {
  readonly name: string;
  /** The parameter it gives for this entry. */
  readonly parameter?: string;
  readonly allowed: string;
  readonly meaning: string;
}

const short = (name: string, allowed: string, meaning: string): EntryKey => ({
  name,
  parameter: `pg_task.${name}`,
  allowed,
  meaning,
});

const name = "a name of 1 to 63 bytes";
const wholeNumber = `a whole number from 1 to ${maxInt}`;

/** The keys of an entry that are no parameters' names. */
export const entryKeys: readonly EntryKey[] = [
  short("data", name, "the database; left out, it is named as the user"),
  short("user", name, "who connects and runs the tasks; left out, it is named as the database"),
  short("schema", name, "schema of the task table"),
  short("table", name, "name of the task table"),
  short("sleep", `a whole number of ms from 1 to ${maxInt}`, "how often the table is checked"),
  short(
    "reset",
    'an interval above 0 as PostgreSQL writes it, such as "1 hour" or "90 sec"',
    "how often orphaned tasks are looked for beyond the immediate checks",
  ),
  short("run", wholeNumber, "most tasks of this table running at once"),
  {
    name: "create",
    allowed: "true or false",
    meaning:
      "whether what is missing (role, database, schema, type, table) is created; default true",
  },
  {
    name: "password",
    allowed: 'a text, or {"env": "NAME"} for the value of an environment variable',
    meaning: "password of the user; a role that is created gets it",
  },
  {
    name: "url",
    allowed: "a url like postgresql://user:password@host:port/database",
    meaning: "server of this entry, when it is not the one of the control connection",
  },
];
