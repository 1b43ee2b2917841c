import type { TaskTable } from "../schema/taskTable.js";

/** How many others of its group a task starts beside, as the index has it: a pause counts as 0. */
export const beside = "greatest(max, 0)";

/** SQL that is true while the whole table is paused. */
export const allPaused = ({ pauses }: TaskTable): string =>
  `EXISTS (SELECT FROM ${pauses} WHERE "group" IS NULL)`;

/** SQL that is true for a row, or part of a statement, of that name whose group is paused. */
export const groupPaused = (table: TaskTable, task: string): string => `
    (${task}."group" = ANY (ARRAY(SELECT "group" FROM ${table.pauses} WHERE "group" IS NOT NULL))
      OR ${allPaused(table)})`;

/** A group's first due task, as a statement returns it. */
export interface HeadRow {
  readonly hash: number;
  readonly max: number;
  /** A number where the table's own column is an integer. */
  readonly id: string | number;
  /** Whether it is not worth running any more. */
  readonly gone: boolean;
  readonly paused: boolean;
}
