import { parseConnectionString } from "../../shared/postgres/connectionString/parse.js";
import { isUri } from "../../shared/postgres/connectionString/parseUri.js";
import { ConnectionStringError } from "../../shared/postgres/errors.js";

/** What a call of psql connects to and runs. */
export interface PsqlCommand {
  readonly database: string | undefined;
  readonly user: string | undefined;
  readonly host: string | undefined;
  readonly pieces: readonly { readonly kind: "command" | "file"; readonly text: string }[];
  /** Whether all pieces are one transaction. */
  readonly single: boolean;
}

const longOptions: Readonly<Record<string, string>> = {
  command: "c",
  file: "f",
  dbname: "d",
  username: "U",
  host: "h",
  port: "p",
  set: "v",
  variable: "v",
  "single-transaction": "1",
  pset: "P",
  "field-separator": "F",
  "record-separator": "R",
  "table-attr": "T",
};

/** Options that change only what psql shows, with and without a value. */
const shownWithValue = "PFRT";
const ignoredFlags = "XqAtwabenSHx0z";
const ignoredLong =
  /^(?:no-psqlrc|quiet|no-align|tuples-only|no-password|echo-\w+|csv|html|expanded|no-readline|field-separator-zero|record-separator-zero)$/;

interface Option {
  readonly letter: string;
  readonly value: string | undefined;
}

/** The letter of an option, and its value if that is in the same word. */
function splitOption(word: string): { readonly letter: string; readonly inWord: string | undefined } {
  const [, name, value] = /^--([\w-]+)(?:=([^]*))?$/.exec(word) ?? [];
  if (name === undefined) return { letter: word.charAt(1), inWord: word.slice(2) === "" ? undefined : word.slice(2) };
  return { letter: ignoredLong.test(name) ? "q" : (longOptions[name] ?? ""), inWord: value };
}

/** Takes the first option off the words, with its value, and leaves the others. */
function takeOption(words: string[]): Option | string {
  const word = words.shift() ?? "";
  const { letter, inWord } = splitOption(word);
  if (letter === "") return `psql's option ${word}`;
  if (`1${ignoredFlags}`.includes(letter)) {
    // Short options can share a word.
    if (inWord !== undefined) words.unshift(`-${inWord}`);
    return { letter, value: undefined };
  }
  const value = inWord ?? words.shift();
  if (value === undefined) return `psql's option ${word} without a value`;
  if (letter === "v" && !/^ON_ERROR_(?:STOP|ROLLBACK)\b/.test(value)) return `psql's variable ${value}`;
  return `cfdUhpv${shownWithValue}`.includes(letter) ? { letter, value } : `psql's option ${word}`;
}

/** @returns why it cannot be taken over, as text */
export function parsePsql(words: readonly string[]): PsqlCommand | string {
  const values = new Map<string, string>();
  const pieces: PsqlCommand["pieces"][number][] = [];
  const names: string[] = [];
  const left = [...words];
  while (left.length > 0) {
    if (left[0]?.startsWith("-") !== true) {
      names.push(left.shift() ?? "");
      continue;
    }
    const option = takeOption(left);
    if (typeof option === "string") return option;
    const { letter, value = "" } = option;
    if (letter === "c" || letter === "f") pieces.push({ kind: letter === "c" ? "command" : "file", text: value });
    else values.set(letter, value);
  }
  const [database = values.get("d"), user = values.get("U"), ...others] = names;
  if (others.length > 0) return `psql's argument ${others[0]}`;
  if (pieces.length === 0) return "psql reads its standard input";
  return withConnectionString({ database, user, host: values.get("h"), pieces, single: values.has("1") });
}

function withConnectionString(command: PsqlCommand): PsqlCommand | string {
  const { database = "", user, host } = command;
  if (!database.includes("=") && !isUri(database)) return command;
  try {
    const given = parseConnectionString(database);
    return {
      ...command,
      database: given.get("dbname"),
      user: given.get("user") ?? user,
      host: given.get("host") ?? host,
    };
  } catch (error) {
    if (error instanceof ConnectionStringError) return error.message;
    throw error;
  }
}
