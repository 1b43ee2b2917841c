import { formatCount } from "../terminal/format.js";

/** Maximum number of lines of a value that a terminal shows without --full. */
const maxLines = 20;
/** Maximum number of characters of a value that a terminal shows without --full. */
const maxCharacters = 4000;

/** Returns the lines of a text, truncated unless `full` is true. */
export function truncateText(text: string, full: boolean): string[] {
  const all = text.split("\n");
  if (full) return all;
  const lines = text.slice(0, maxCharacters).split("\n").slice(0, maxLines);
  const kept = lines.join("\n").length;
  if (kept === text.length) return all;
  const hidden = text.length - kept;
  return [...lines, `… ${formatCount(hidden, "more character")} (see --full)`];
}
