/** The length of a timestamp from its beginning up to and including the minute. */
const minuteLength = "2026-01-02T03:04".length;

/** Returns the milliseconds between two ISO 8601 timestamps with microseconds. */
export function elapsedMs(start: string, stop: string): number {
  const secondsMs = (seconds(stop) - seconds(start)) * 1000;
  // For most runs both timestamps have the same minute. Parsing the part before the seconds would cost more than
  // everything else done with a run time, so it is parsed only if the minutes differ.
  const minute = start.slice(0, minuteLength);
  if (minute.length === minuteLength && stop.startsWith(minute)) return secondsMs;
  return minuteMs(stop) - minuteMs(start) + secondsMs;
}

const seconds = (time: string): number => Number(time.slice(minuteLength + 1, -1));
const minuteMs = (time: string): number => Date.parse(`${time.slice(0, minuteLength)}Z`);
