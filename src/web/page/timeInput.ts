/** Converts the value of a `datetime-local` input, which is in the reader's zone, to ISO 8601. Invalid values become "". */
export function toIso(local: string): string {
  const date = new Date(local);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString();
}

/** Converts an ISO 8601 time to the value of a `datetime-local` input. Invalid times become "". */
export function toLocalInput(iso: string): string {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return "";
  const local = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19);
}
