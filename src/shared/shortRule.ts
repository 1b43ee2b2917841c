/** Returns a rule on one line, without the DTSTART that pg-task adds to an RRULE. Its zone is shown separately. */
export function shortRule(rule: string): string {
  return rule
    .trim()
    .replace(/^DTSTART[^\n]*\n(?=[^]*RRULE)/i, "")
    .replace(/^RRULE:/i, "")
    .replace(/\s+/g, " ");
}
