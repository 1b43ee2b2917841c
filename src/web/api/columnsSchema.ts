import { z } from "zod";
import { columnList, type TaskColumn } from "../../shared/taskColumns.js";

const typeNames: Readonly<Partial<Record<TaskColumn["type"], string>>> = {
  "timestamp with time zone": "ISO 8601",
  '"char"': "one character",
  "bigint[]": "ids as strings",
  "text[]": "strings",
  text: "string",
};

/** Says what a column of the task table is. */
export const describeColumn = ({ type, meaning }: TaskColumn): string => `${typeNames[type] ?? type}: ${meaning}`;

/**
 * The schema of the columns that a task's page does not show as properties of their own. Their types are not in the
 * schema, because a table that pg-task has adopted may have columns of other types.
 *
 * @param shown the properties of the task's page
 */
export function columnsSchema(shown: ReadonlySet<string>): z.ZodType<Record<string, unknown>> {
  const others = columnList.filter(({ name }) => !shown.has(name));
  return z
    .looseObject(
      Object.fromEntries(
        others.map((column) => [
          column.name,
          z
            .unknown()
            .optional()
            .meta({ description: describeColumn(column) }),
        ]),
      ),
    )
    .meta({ description: "all other columns, including user-defined ones" });
}
