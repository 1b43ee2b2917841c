import { formatDuration } from "./formatDuration.js";

/** @param failures how many runs in a row have failed */
export const describeSuspension = (failures: number): string =>
  `suspended after ${failures === 1 ? "a failure" : `${failures} failures in a row`}`;

/** Before, a schedule only waits for the next check. */
const lateMs = 5_000;

export const formatLateness = (overdueMs: number | null): string | null =>
  overdueMs === null || overdueMs < lateMs ? null : `late by ${formatDuration(overdueMs)}`;

/** Returns a rule on one line, without the DTSTART that pg-task adds to an RRULE. Its zone is shown separately. */
export function shortRule(rule: string): string {
  return rule
    .trim()
    .replace(/^DTSTART[^\n]*\n(?=[^]*RRULE)/i, "")
    .replace(/^RRULE:/i, "")
    .replace(/\s+/g, " ");
}
