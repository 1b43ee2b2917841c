import type { TaskSummary } from "../../tasks/types.js";
import { firstLine } from "../../shared/firstLine.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { formatTime } from "../terminal/format.js";
import type { TableColumn } from "../terminal/table.js";
import { stateColour } from "../terminal/terminal.js";

/** Maximum length of input, output and error in a summary, in characters. */
export const summaryLength = 1000;

const collapseWhitespace = (text: string): string => text.trim().replace(/\s+/g, " ");

const keyColumn: TableColumn<TaskSummary> = { title: "key", value: ({ key }) => key, flexible: true };

const commonColumns: readonly TableColumn<TaskSummary>[] = [
  { title: "id", value: ({ id }) => id, alignRight: true },
  { title: "state", value: ({ state }) => state, colour: ({ state }) => stateColour(state) },
  { title: "group", value: ({ group }) => group, flexible: true },
  {
    title: "plan",
    value: ({ plan }) => plan,
    display: ({ plan, held }) => (held && plan === "infinity" ? "after others" : formatTime(plan)),
  },
  {
    title: "took",
    value: ({ tookMs }) => (tookMs === null ? null : String(tookMs)),
    display: ({ tookMs }) => (tookMs === null ? "" : formatDuration(tookMs)),
    alignRight: true,
  },
  {
    title: "input",
    value: ({ input }) => input,
    display: ({ input }) => collapseWhitespace(input),
    flexible: true,
  },
  {
    title: "result",
    value: ({ error, output }) => error ?? output,
    display: ({ error, output }) => (error === null ? collapseWhitespace(output ?? "") : firstLine(error)),
    colour: ({ error }) => (error === null ? null : "red"),
    flexible: true,
  },
];

/** The columns of a table of tasks on a terminal. Keys are shown if at least one of the tasks has one. */
export const taskColumns = (tasks: readonly TaskSummary[]): readonly TableColumn<TaskSummary>[] =>
  tasks.some(({ key }) => key !== null)
    ? commonColumns.flatMap((column) => (column.title === "group" ? [column, keyColumn] : [column]))
    : commonColumns;

/** The fields of a task in a tab-separated line. */
export const taskFields: readonly TableColumn<TaskSummary>[] = [...commonColumns, keyColumn];
