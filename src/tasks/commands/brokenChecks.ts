import { boundsCheckName } from "../../manager/schema/boundsCheck.js";
import { isServerError } from "../../shared/postgres/client.js";
import { checkViolation } from "../../shared/postgres/sqlStates.js";
import { columnList } from "../../shared/taskColumns.js";

export interface BrokenCheck {
  readonly column: string;
  readonly value: string;
  readonly demand: string;
}

interface GivenColumns {
  readonly columns: ReadonlyMap<string, string | null>;
}

const hasNegativePart = (interval: string): boolean => /-|\bago\b/i.test(interval);

/** Each finds every value that breaks its bounds, and may find others. */
const checks = {
  "above 0": {
    demand: "must be above 0",
    isBroken: (value: string): boolean => hasNegativePart(value) || !/[1-9]/.test(value),
  },
  "not below 0": { demand: "must not be below 0", isBroken: hasNegativePart },
  ASCII: {
    demand: "must be an ASCII character",
    isBroken: (value: string): boolean => /[^\0-\x7f]/.test(value),
  },
} as const;

/**
 * The server names only the constraint, which is the same for all of these columns in tables that pg-task created.
 * Empty if another constraint was broken, or by a column's default.
 */
export function findBrokenChecks(error: unknown, rows: readonly GivenColumns[]): BrokenCheck[] {
  if (!isServerError(error) || error.code !== checkViolation) return [];
  const name = error.constraint ?? "";
  if (name !== boundsCheckName && !/_check\d*$/.test(name)) return [];
  return columnList.flatMap(({ name: column, bounds }) => {
    if (bounds === undefined) return [];
    const { demand, isBroken } = checks[bounds];
    const value = rows.map((row) => row.columns.get(column) ?? null).find((each) => each !== null && isBroken(each));
    return value === null || value === undefined ? [] : [{ column, value, demand }];
  });
}
