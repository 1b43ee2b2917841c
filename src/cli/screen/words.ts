/** A length of time for a reader: "0.3 ms", "12 ms", "3.4 s", "5 min 10 s", "2 h 5 min", "3 d 4 h". */
export function duration(ms: number): string {
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms > 0 && ms < 1) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (const [long, short, size, part] of [
    ["d", "h", 86_400, 3600],
    ["h", "min", 3600, 60],
    ["min", "s", 60, 1],
  ] as const) {
    if (whole < size) continue;
    const rest = Math.floor((whole % size) / part);
    return rest === 0
      ? `${Math.floor(whole / size)} ${long}`
      : `${Math.floor(whole / size)} ${long} ${rest} ${short}`;
  }
  return `${whole} s`;
}

const two = (number: number): string => String(number).padStart(2, "0");

/** A time of the server's for a reader: in the zone of the machine, to the second; "infinity" as it is. */
export function shownTime(iso: string | null, now = new Date()): string {
  if (iso === null) return "";
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(":");
  const day = [time.getFullYear(), two(time.getMonth() + 1), two(time.getDate())].join("-");
  return time.toDateString() === now.toDateString() ? clock : `${day} ${clock}`;
}

/** 1234567 as "1,234,567". */
export const shownNumber = (number: number): string => number.toLocaleString("en-US");

/** "1 task", "2 tasks". */
export const counted = (number: number, what: string): string =>
  `${shownNumber(number)} ${what}${number === 1 ? "" : "s"}`;
