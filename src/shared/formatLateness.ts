import { formatDuration } from "./formatDuration.js";

/** A schedule is called late when its time came longer ago than this. Before, it only waits for the next check. */
const lateMs = 5_000;

/** Says how late a schedule is, or returns null if it is not late. */
export const formatLateness = (overdueMs: number | null): string | null =>
  overdueMs === null || overdueMs < lateMs ? null : `late by ${formatDuration(overdueMs)}`;
