import type { Entry } from "./types.js";

export const entryNames = (entries: readonly Entry[], entry: Entry): readonly string[] => [
  String(entries.indexOf(entry) + 1),
  entry.key,
  entry.target.database,
];

export const tableNames = ({ schema, table }: Entry): readonly string[] => [table, `${schema}.${table}`];

export const entriesNamed = (entries: readonly Entry[], name: string): readonly Entry[] =>
  entries.filter((entry) => [...entryNames(entries, entry), ...tableNames(entry)].includes(name));
