import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";

const firstRows = 2_000;
const minRows = 100;
const maxRows = 20_000;
/** If reading a window took longer, the next one is smaller; if it took less than a third of this, it is larger. */
const slowMs = 300;

/** What a statement that reads a window returns in each of its rows. There is always at least one row. */
export interface WindowRow {
  readonly scanned: number;
  /** The last id in the window, or an empty string if the window has no rows. */
  readonly last: string;
}

/**
 * Scans a table in the order of its ids, one window (a limited number of rows) at a time. The size of the windows
 * adapts to the time that they take, so that each statement is short, however large the values in the rows are.
 *
 * @param fixedSize returns the size of each window, if it must not adapt
 */
export async function* windows<T extends WindowRow>(
  read: (size: number, from: string | undefined) => Promise<T>,
  from: string | undefined,
  fixedSize?: () => number,
): AsyncGenerator<T & { readonly isLast: boolean }, void> {
  let adapted = firstRows;
  let last = from;
  for (;;) {
    const size = fixedSize?.() ?? adapted;
    const began = performance.now();
    const found = await read(size, last);
    const tookMs = performance.now() - began;
    if (tookMs > slowMs) adapted = Math.max(minRows, Math.trunc(adapted / 4));
    else if (tookMs < slowMs / 3) adapted = Math.min(maxRows, adapted * 2);
    const isLast = found.scanned < size;
    yield { ...found, isLast };
    if (isLast) return;
    last = found.last;
  }
}

export interface ScanExtent {
  readonly scanned: number;
  readonly complete: boolean;
}

interface WindowQuery<T extends WindowRow> {
  /** SQL of the columns of row `t` that `select` needs. */
  readonly columns: string;
  /** SQL of a query on the rows `seen`, which also selects `extentColumns`. */
  readonly select: string;
  /** The parameters of `select`, from `$1`. */
  readonly values?: readonly unknown[];
  readonly add: (rows: readonly T[]) => void;
}

/** @param enough the scan ends after a window if this returns true */
export async function scanNewest<T extends WindowRow>(
  client: Queryable,
  { qualified }: TaskTable,
  { columns, select, values = [], add }: WindowQuery<T>,
  enough: () => boolean,
): Promise<ScanExtent> {
  const read = async (size: number, before: string | undefined): Promise<WindowRow & { readonly rows: T[] }> => {
    const from = before === undefined ? "" : `WHERE t.id OPERATOR(pg_catalog.<) $${values.length + 1}::bigint`;
    const { rows } = await client.query<T>(
      `WITH seen AS MATERIALIZED (
         SELECT t.id, ${columns} FROM ${qualified} AS t ${from} ORDER BY t.id DESC LIMIT ${size}
       ), extent AS (SELECT pg_catalog.count(*)::integer AS scanned, coalesce(pg_catalog.min(id)::pg_catalog.text, '') AS last FROM seen)
       ${select}`,
      before === undefined ? [...values] : [...values, before],
    );
    const [{ scanned, last } = { scanned: 0, last: "" }] = rows;
    return { rows, scanned, last };
  };
  let scanned = 0;
  for await (const window of windows(read, undefined)) {
    add(window.rows);
    scanned += window.scanned;
    if (window.isLast) break;
    if (enough()) return { scanned, complete: false };
  }
  return { scanned, complete: true };
}

/** SQL of the columns of `WindowRow`, in a query on `extent`. */
export const extentColumns = "extent.scanned, extent.last";
