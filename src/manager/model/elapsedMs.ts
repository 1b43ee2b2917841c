const minuteLength = "2026-01-02T03:04".length;

/** Returns the milliseconds between two ISO 8601 timestamps with microseconds. */
export function elapsedMs(start: string, stop: string): number {
  const secondsMs = (seconds(stop) - seconds(start)) * 1000;
  // Mostly, both have the same minute. Parsing the rest would cost more than everything else done with a run time.
  const minute = start.slice(0, minuteLength);
  if (minute.length === minuteLength && stop.startsWith(minute)) return secondsMs;
  return minuteMs(stop) - minuteMs(start) + secondsMs;
}

const seconds = (time: string): number => Number(time.slice(minuteLength + 1, -1));
const minuteMs = (time: string): number => Date.parse(`${time.slice(0, minuteLength)}Z`);
