import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { queryOne } from "../queryOne.js";

interface Rules {
  /** The rule of the definition. */
  readonly given: string;
  /** The rule of the row, in whose recurrence the runs so far are no longer counted. */
  readonly stored: string;
  /** The rule that a new row with the definition would have. */
  readonly wanted: string;
  readonly zone: string | null;
}

const startLine = /^DTSTART\b.*$\n?/im;
const count = /;COUNT=\d+/i;

/**
 * Whether two recurrence rules differ only in what changes with time: in the DTSTART, if the definition leaves it open,
 * and in the number of times that are left.
 */
export async function sameTimes(client: Client, table: TaskTable, rules: Rules): Promise<boolean> {
  const { given, stored, wanted, zone } = rules;
  if (!startLine.test(stored) || !startLine.test(wanted)) return false;
  if (!/\bDTSTART\b/i.test(given)) return stored.replace(startLine, "") === wanted.replace(startLine, "");
  const rest = (rule: string): string => rule.replace(startLine, "").replace(count, "");
  if (!count.test(given) || rest(stored) !== rest(wanted)) return false;
  const calendar = identifier(table.schema);
  // The stored rule begins with the time for which its row waits.
  const since = `coalesce(${calendar}.task_next($1::text, $3::text, now()) - interval '1 microsecond', now())`;
  const { same } = await queryOne<{ same: boolean }>(
    client,
    `SELECT (${calendar}.task_next($1::text, $3::text, ${since}), ${calendar}.task_rrule_last($1::text, $3::text))
       IS NOT DISTINCT FROM (${calendar}.task_next($2::text, $3::text, ${since}), ${calendar}.task_rrule_last($2::text, $3::text)) AS same`,
    [stored, wanted, zone],
  );
  return same;
}
