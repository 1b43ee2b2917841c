import type { TaskSummary } from "../../tasks/types.js";
import { firstLine } from "../../shared/firstLine.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { formatTime } from "../terminal/format.js";
import type { TableColumn } from "../terminal/table.js";
import { stateColour } from "../terminal/terminal.js";

/** Maximum length of input, output and error in a summary, in characters. */
export const summaryLength = 1000;

const collapseWhitespace = (text: string): string => text.trim().replace(/\s+/g, " ");

/** The columns of a table of tasks. */
export const taskColumns: readonly TableColumn<TaskSummary>[] = [
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
