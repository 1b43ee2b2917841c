import { quotedLine } from "../../shared/printable.js";
import type { Change, ChangeResult } from "../../tasks/commands/changeTasks.js";
import type { OpenTable } from "./openTable.js";
import { shellWord } from "./shellWord.js";

/**
 * Returns, by id, that a task which a change has planned for now does not start, because its group or the whole table is
 * paused. The changes have been made, so nothing that cannot be read makes the command fail.
 */
export async function readPauseNotes(
  { client, table }: OpenTable,
  change: Change,
  results: readonly ChangeResult[],
): Promise<ReadonlyMap<string, string>> {
  const changed = results.filter(({ outcome }) => outcome === "changed").map(({ id }) => id);
  if ((change !== "run-now" && change !== "retry") || changed.length === 0) return new Map();
  try {
    const { rows } = await client.query<{ id: string; group: string | null }>(
      `SELECT t.id::text AS id, p."group" FROM ${table.pauses} AS p JOIN ${table.qualified} AS t
         ON p."group" IS NULL OR p."group" = t."group"::text
       WHERE t.id = ANY ($1::bigint[]) ORDER BY p."group" NULLS FIRST`,
      [changed],
    );
    const notes = new Map<string, string>();
    for (const { id, group } of rows) {
      const before = notes.get(id);
      notes.set(id, `${before === undefined ? ", but " : `${before}; `}${describePause(group)}`);
    }
    return notes;
  } catch {
    return new Map();
  }
}

const describePause = (group: string | null): string =>
  group === null
    ? "the whole table is paused: pg-task resume"
    : `its group ${quotedLine(group)} is paused: pg-task resume --group ${shellWord(group)}`;
