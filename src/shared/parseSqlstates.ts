/** An SQLSTATE or a class (its first two characters), with `!` if it is excluded. */
export const sqlstatePattern = /^!?[0-9A-Z]{2}([0-9A-Z]{3})?$/;

/** Parses `pg_task.sqlstate`. Returns null if an entry is invalid. */
export function parseSqlstates(text: string): string[] | null {
  if (text.trim() === "") return [];
  const entries = text.split(",").map((entry) => entry.trim());
  return entries.every((entry) => sqlstatePattern.test(entry)) ? entries : null;
}
