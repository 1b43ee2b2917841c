/** One entry of a list of SQLSTATEs: an SQLSTATE or a class (its first two characters). With `!` it is excluded. */
export const sqlstatePattern = /^!?[0-9A-Z]{2}([0-9A-Z]{3})?$/;

/**
 * Parses the setting `pg_task.sqlstate`, a list with commas.
 *
 * @returns null if an entry is neither an SQLSTATE nor a class
 */
export function parseSqlstates(text: string): string[] | null {
  if (text.trim() === "") return [];
  const entries = text.split(",").map((entry) => entry.trim());
  return entries.every((entry) => sqlstatePattern.test(entry)) ? entries : null;
}
