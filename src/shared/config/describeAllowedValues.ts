import { maxInt } from "../postgres/serverLimits.js";
import { leastTokenLength } from "./secretValue.js";
import { findParameter } from "./parameters.js";
import { logLevels, weightBounds, type Parameter } from "./parameterTable.js";

export function allowedValues(parameter: Parameter): string {
  const { type } = parameter;
  switch (type) {
    case "bool":
      return "true or false";
    case "int": {
      const unit = parameter.unit === undefined ? "" : ` of ${parameter.unit}`;
      return `a whole number${unit} from ${parameter.min ?? 0} to ${parameter.max ?? maxInt}`;
    }
    case "interval": {
      const bound = parameter.aboveMin ? "above 0" : "not below 0";
      return `an interval ${bound} in PostgreSQL syntax, such as "1 hour" or "90 sec"`;
    }
    case "char":
      return "one ASCII character, or an empty string for none";
    case "text":
      return parameter.min === 1 ? "a non-empty string" : "a string";
    case "name":
      return "a name of 1 to 63 bytes";
    case "expression":
      return "an SQL expression as a string";
    case "size":
      return `a whole number of bytes from ${parameter.min ?? 0} to ${parameter.max ?? maxInt}, or a string with kB, MB or GB such as "64MB"`;
    case "level":
      return `one of ${logLevels.map((level) => `"${level}"`).join(", ")}`;
    case "listen":
      return 'a string "HOST:PORT" or ":PORT", with port 0 for a free port; an empty string disables it';
    case "hosts":
      return 'host names or IP addresses without ports, with commas between them, such as "tasks.example.com,[2001:db8::1]"';
    case "path":
      return 'a path that begins with a slash and does not end with one, such as "/tasks", or an empty string';
    case "header":
      return 'the name of a header, such as "X-Forwarded-User", or an empty string';
    case "networks":
      return 'IP addresses and networks with commas between them, such as "10.0.0.0/8,::1"';
    case "sqlstates":
      return 'SQLSTATEs and their two-character classes with commas between them, such as "40,55P03", or with "!" those to leave out, such as "!42,!0A"';
    case "secret":
      return `a token of at least ${leastTokenLength} visible ASCII characters, or {"env": "NAME"} for the value of an environment variable`;
    case "weights":
      return `an object of shares with numbers from ${weightBounds.min} to ${weightBounds.max}, such as {"alice": 2}`;
    case "webhooks":
      return 'a list of objects with "url", "secret" and, if you like, "name", "states", "groups" and "tables"';
    case "json":
      return "an array of entries";
    default:
      return type satisfies never;
  }
}

export interface EntryKey {
  readonly name: string;
  readonly parameter?: Parameter;
  readonly allowed: string;
  readonly meaning: string;
}

function short(name: string, ownMeaning?: string): EntryKey {
  const parameter = findParameter(`pg_task.${name}`);
  if (parameter === undefined) throw new Error(`no parameter for the entry's key ${name}`);
  return { name, parameter, allowed: allowedValues(parameter), meaning: ownMeaning ?? parameter.meaning };
}

/** The keys of an entry that are not names of parameters. */
export const entryKeys: readonly EntryKey[] = [
  short("data", "the database; defaults to `user`"),
  short("user", "user that connects and runs the tasks; defaults to `data`"),
  short("schema"),
  short("table"),
  short("sleep"),
  short("reset"),
  short("run", "maximum tasks of this table running at once"),
  {
    name: "create",
    allowed: "true or false",
    meaning:
      "true: a missing role, database, schema, type and table are created; false: none of them; by default schema, type and table, and with `pg_task.create` also role and database",
  },
  {
    name: "users",
    allowed: "true or false",
    meaning: "whether each task runs as the role that wrote it, and not as the user; false by default",
  },
  {
    name: "password",
    allowed: 'a string, or {"env": "NAME"} for the value of an environment variable',
    meaning: "password of the user; a role that pg-task creates gets it, and later changes of it",
  },
  {
    name: "url",
    allowed: "a URL like postgresql://user:password@host:port/database",
    meaning: "server of this entry, if it is not the control connection's server",
  },
];
