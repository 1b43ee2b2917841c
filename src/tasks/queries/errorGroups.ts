import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { isoTimeSql } from "../sqlFragments.js";
import { extentColumns, scanNewest, type ScanExtent, type WindowRow } from "./newestRows.js";

/** Tasks whose errors have the same first line. */
export interface ErrorGroup {
  /** The first line, up to 1,000 characters. */
  readonly error: string;
  readonly count: number;
  /** The latest `stop` of these tasks, in ISO 8601. Null if none has one. */
  readonly lastSeen: string | null;
  /** The largest id of these tasks. */
  readonly lastId: string;
}

export interface ErrorGroups extends ScanExtent {
  /** The groups with the most tasks first. */
  readonly errors: readonly ErrorGroup[];
  /** Whether there are more groups than were returned. */
  readonly more: boolean;
}

/** How many groups of one window are counted, so that errors that are all different do not fill the memory. */
const maxPerWindow = 1_000;
/** How many groups are kept while the rows are scanned. */
const maxKept = 10_000;

/**
 * Groups the errors of the newest rows by their first lines, as the view `task_errors` does for all rows.
 *
 * @param limit how many groups are returned
 * @param enough the scan ends as soon as this returns true
 */
export async function readErrorGroups(
  client: Queryable,
  table: TaskTable,
  limit: number,
  enough: () => boolean,
): Promise<ErrorGroups> {
  const groups = new Map<string, ErrorGroup>();
  const extent = await scanNewest<
    WindowRow & { error: string | null; count: number; lastSeen: string; lastId: string }
  >(
    client,
    table,
    {
      columns: `"left"(split_part(t.error::text, E'\\n', 1), 1000) AS error, t.stop::timestamptz AS stop`,
      select: `SELECT ${extentColumns}, e.error, e.count, e."lastSeen", e."lastId" FROM extent LEFT JOIN (
          SELECT error, count(*)::float8 AS count, ${isoTimeSql("max(stop)")} AS "lastSeen", max(id)::text AS "lastId"
          FROM seen WHERE error IS NOT NULL GROUP BY error ORDER BY 2 DESC LIMIT ${maxPerWindow}
        ) AS e ON true`,
      add: (rows) => {
        for (const { error, count, lastSeen, lastId } of rows) {
          if (error !== null) addGroup(groups, { error, count, lastSeen, lastId });
        }
      },
    },
    enough,
  );
  const sorted = [...groups.values()].toSorted(
    (a, b) => b.count - a.count || Number(BigInt(b.lastId) - BigInt(a.lastId)),
  );
  return { errors: sorted.slice(0, limit), more: sorted.length > limit, ...extent };
}

function addGroup(groups: Map<string, ErrorGroup>, added: ErrorGroup): void {
  const known = groups.get(added.error);
  if (known === undefined) {
    if (groups.size < maxKept) groups.set(added.error, added);
    return;
  }
  // Windows are read in descending order of id, so the first one has the largest id.
  groups.set(added.error, {
    ...known,
    count: known.count + added.count,
    lastSeen: laterTime(known.lastSeen, added.lastSeen),
  });
}

/** Returns the later of two times of the same server and session, or the only one. */
function laterTime(a: string | null, b: string | null): string | null {
  if (a === null || b === null) return a ?? b;
  const difference = Date.parse(a) - Date.parse(b);
  if (difference !== 0) return difference > 0 ? a : b;
  return a > b ? a : b;
}
