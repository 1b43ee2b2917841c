import type { Group, Groups } from "../../tasks/queries/groups.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { formatTime } from "../terminal/format.js";
import type { TableColumn } from "../terminal/table.js";

/** Returns the columns of a table of groups. Unless all rows were read, the counts are marked as estimates. */
export const groupColumns = ({ complete }: Groups): readonly TableColumn<Group>[] => [
  { title: "group", value: ({ group }) => group, flexible: true },
  { title: "running", value: ({ running }) => String(running), alignRight: true },
  countColumn("due", ({ due }) => due, complete),
  countColumn("waiting", ({ waiting }) => waiting, complete),
  {
    title: "oldest",
    value: ({ oldest }) => oldest,
    display: ({ oldest }) => formatTime(oldest),
  },
  {
    title: "paused",
    value: ({ paused }) => String(paused),
    display: ({ paused }) => (paused ? "paused" : ""),
    colour: () => "yellow",
  },
  {
    title: "gap",
    value: ({ gapMs }) => String(gapMs),
    display: ({ gapMs }) => (gapMs > 0 ? formatDuration(gapMs) : ""),
    alignRight: true,
  },
];

const countColumn = (title: string, count: (group: Group) => number, exact: boolean): TableColumn<Group> => ({
  title,
  value: (group) => String(count(group)),
  display: (group) => `${exact || count(group) === 0 ? "" : "about "}${count(group)}`,
  alignRight: true,
});
