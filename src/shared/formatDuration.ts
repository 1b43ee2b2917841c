const days = { long: "d", longMs: 86_400_000, short: "h", shortMs: 3_600_000 };
const pairs = [
  { long: "min", longMs: 60_000, short: "s", shortMs: 1_000, below: 3_600_000 },
  { long: "h", longMs: 3_600_000, short: "min", shortMs: 60_000, below: 86_400_000 },
] as const;

/** Formats a duration like "0.04 ms", "12 ms", "3.4 s", "5 min 10 s" or "3 d 4 h". Web pages use this module too. */
export function formatDuration(ms: number): string {
  if (ms < 0) return `-${formatDuration(-ms)}`;
  if (ms > 0 && ms < 0.95) return `${ms.toFixed(ms < 0.095 ? 2 : 1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9_950) return `${(ms / 1_000).toFixed(1)} s`;
  return formatWholeSeconds(ms);
}

/** Formats a duration like "0 s", "2 s" or "1 min 5 s". */
export function formatWholeSeconds(ms: number): string {
  if (ms < 59_500) return `${Math.round(ms / 1_000)} s`;
  const pair = pairs.find(({ shortMs, below }) => Math.round(ms / shortMs) * shortMs < below);
  const { long, longMs, short, shortMs } = pair ?? days;
  const rounded = Math.round(ms / shortMs) * shortMs;
  const rest = (rounded % longMs) / shortMs;
  return `${Math.floor(rounded / longMs)} ${long}${rest === 0 ? "" : ` ${rest} ${short}`}`;
}
