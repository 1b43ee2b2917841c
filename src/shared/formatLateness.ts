import { formatDuration } from "./formatDuration.js";

/** Before, a schedule only waits for the next check. */
const lateMs = 5_000;

export const formatLateness = (overdueMs: number | null): string | null =>
  overdueMs === null || overdueMs < lateMs ? null : `late by ${formatDuration(overdueMs)}`;
