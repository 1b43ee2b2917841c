import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { ScanWindow } from "./scanWindow.js";

/** How far a scan of the newest rows has come. */
export interface ScanExtent {
  /** Number of rows that were scanned. */
  readonly scanned: number;
  /** Whether all rows were scanned. */
  readonly complete: boolean;
}

/** What a statement that reads a window returns in each of its rows. There is always at least one row. */
export interface WindowRow {
  readonly scanned: number;
  /** The smallest id in the window, or an empty string if the window has no rows. */
  readonly last: string;
}

/** What is read of each window, and how. */
interface WindowQuery<T extends WindowRow> {
  /** SQL of the columns of row `t` that `select` needs. */
  readonly columns: string;
  /** SQL of a query on the rows `seen`, which also selects `extentColumns`. */
  readonly select: string;
  /** The parameters of `select`, from `$1`. */
  readonly values?: readonly unknown[];
  readonly add: (rows: readonly T[]) => void;
}

/**
 * Scans rows in descending order of id, one window (a limited number of rows) at a time.
 *
 * @param enough the scan ends after a window if this returns true
 */
export async function scanNewest<T extends WindowRow>(
  client: Queryable,
  { qualified }: TaskTable,
  { columns, select, values = [], add }: WindowQuery<T>,
  enough: () => boolean,
): Promise<ScanExtent> {
  const window = new ScanWindow();
  const readWindow = async (size: number, before: string | null): Promise<T[]> => {
    const from = before === null ? "" : `WHERE t.id < $${values.length + 1}::bigint`;
    const { rows } = await client.query<T>(
      `WITH seen AS MATERIALIZED (
         SELECT t.id, ${columns} FROM ${qualified} AS t ${from} ORDER BY t.id DESC LIMIT ${size}
       ), extent AS (SELECT count(*)::integer AS scanned, coalesce(min(id)::text, '') AS last FROM seen)
       ${select}`,
      before === null ? [...values] : [...values, before],
    );
    return rows;
  };
  let before: string | null = null;
  let scanned = 0;
  for (;;) {
    const size = window.rows;
    const from: string | null = before;
    const rows: T[] = await window.timed(() => readWindow(size, from));
    add(rows);
    const { scanned: found, last } = rows[0] ?? { scanned: 0, last: "" };
    scanned += found;
    if (found < size) return { scanned, complete: true };
    if (enough()) return { scanned, complete: false };
    before = last;
  }
}

/** SQL of the columns of `WindowRow`, in a query on `extent`. */
export const extentColumns = "extent.scanned, extent.last";
