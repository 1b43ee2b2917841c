import type { Entry } from "./types.js";

/** Returns what names an entry in `--entry`: its number (from 1), its key and its database. */
export const entryNames = (entries: readonly Entry[], entry: Entry): readonly string[] => [
  String(entries.indexOf(entry) + 1),
  entry.key,
  entry.target.database,
];

/** Returns what names an entry's table in `--table`: `table` and `schema.table`. */
export const tableNames = ({ schema, table }: Entry): readonly string[] => [table, `${schema}.${table}`];

/** Returns the entries that a value of `pg_task.default` names. */
export const entriesNamed = (entries: readonly Entry[], name: string): readonly Entry[] =>
  entries.filter((entry) => [...entryNames(entries, entry), ...tableNames(entry)].includes(name));
