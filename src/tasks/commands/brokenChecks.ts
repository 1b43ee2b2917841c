import { boundsCheckName } from "../../manager/schema/boundsCheck.js";
import { isServerError } from "../../shared/postgres/client.js";
import { checkViolation } from "../../shared/postgres/sqlStates.js";
import type { NewRow } from "./addTask.js";

/** A value that breaks a check of the task table. */
export interface BrokenCheck {
  readonly column: string;
  readonly value: string;
  /** What the check demands, as text that continues the name of the column. */
  readonly demand: string;
}

interface ColumnCheck {
  readonly columns: readonly string[];
  readonly demand: string;
  /** Whether the value seems to break the check. It must find every value that does. */
  readonly isBroken: (value: string) => boolean;
}

/** Whether the text of an interval says that a part of it is negative. */
const hasNegativePart = (interval: string): boolean => /-|\bago\b/i.test(interval);

/** The checks that the migrations create, by what they demand. */
const columnChecks: readonly ColumnCheck[] = [
  {
    columns: ["active"],
    demand: "must be above 0",
    isBroken: (value) => hasNegativePart(value) || !/[1-9]/.test(value),
  },
  { columns: ["live", "repeat", "timeout", "keep"], demand: "must not be below 0", isBroken: hasNegativePart },
  { columns: ["count"], demand: "must not be below 0", isBroken: hasNegativePart },
  {
    columns: ["delimiter", "escape", "quote"],
    demand: "must be an ASCII character",
    isBroken: (value) => /[^\0-\x7f]/.test(value),
  },
];

/**
 * Returns the values because of which the server says that rows break a check of the table. The server names only the
 * constraint, which is the same for all of these columns in tables that pg-task created. The result is empty if another
 * constraint was broken, or a value that the rows do not give (a default of a column).
 */
export function findBrokenChecks(error: unknown, rows: readonly NewRow[]): BrokenCheck[] {
  if (!isServerError(error) || error.code !== checkViolation) return [];
  const name = error.constraint ?? "";
  if (name !== boundsCheckName && !/_check\d*$/.test(name)) return [];
  return columnChecks.flatMap(({ columns, demand, isBroken }) =>
    columns.flatMap((column) => {
      const value = rows.map((row) => row.columns.get(column) ?? null).find((each) => each !== null && isBroken(each));
      return value === null || value === undefined ? [] : [{ column, value, demand }];
    }),
  );
}
