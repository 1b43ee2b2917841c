import type { Section } from "../measures/measure.js";

/** Returns a Markdown table whose columns are aligned as the formatter aligns them. */
export function markdownTable({ head, rows }: Pick<Section, "head" | "rows">): string {
  const widths = head.map((_, column) => Math.max(3, ...[head, ...rows].map((row) => width(row[column] ?? ""))));
  const line = (row: readonly string[]): string =>
    `| ${widths.map((wide, column) => pad(row[column] ?? "", wide)).join(" | ")} |`;
  const rule = `| ${widths.map((wide) => "-".repeat(wide)).join(" | ")} |`;
  return [line(head), rule, ...rows.map(line)].join("\n");
}

function pad(text: string, wide: number): string {
  return text + " ".repeat(wide - width(text));
}

function width(text: string): number {
  return Array.from(text).length;
}
