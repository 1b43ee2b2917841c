import { copyField } from "./copyField.js";
import { printableLine } from "../../shared/printable.js";
import { colourText, type Colour, type Terminal } from "./terminal.js";
import { truncate, padToWidth, displayWidth } from "./displayWidth.js";

/**
 * A column of a table on a terminal. If the output is not a terminal, the column is a field of a tab-separated line.
 */
export interface TableColumn<Row> {
  readonly title: string;
  readonly value: (row: Row) => string | null;
  /** Returns what a terminal shows instead of `value`. */
  readonly display?: (row: Row) => string;
  readonly colour?: (row: Row) => Colour | null;
  readonly alignRight?: true;
  /** Whether the column shrinks if the table is too wide. */
  readonly flexible?: true;
}

const gap = 2;
const minFlexibleWidth = 4;

/**
 * Formats rows as lines. For a terminal, the result is a table with titles that is no wider than the terminal. For
 * other outputs, each row becomes a line in the text format of COPY.
 */
export function renderTable<Row>(
  terminal: Terminal,
  columns: readonly TableColumn<Row>[],
  rows: readonly Row[],
): string[] {
  if (!terminal.isTerminal) {
    return rows.map((row) => columns.map(({ value }) => copyField(value(row))).join("\t"));
  }
  const cells = rows.map((row) =>
    columns.map(({ value, display }) => printableLine(display?.(row) ?? value(row) ?? "")),
  );
  const widths = fitColumns(
    columns.map(({ title, flexible }, index) => ({
      wanted: Math.max(displayWidth(title), ...cells.map((line) => displayWidth(line[index] ?? ""))),
      flexible: flexible === true,
    })),
    terminal.columns,
  );
  const line = (texts: readonly string[], paint: (text: string, column: number) => string): string =>
    texts
      .map((text, index) => {
        const { alignRight } = columns[index] ?? {};
        const columnsWide = widths[index] ?? 0;
        const last = index === texts.length - 1 && alignRight !== true;
        const shown = truncate(text, columnsWide);
        return paint(last ? shown : padToWidth(shown, columnsWide, alignRight === true), index);
      })
      .join(" ".repeat(gap))
      .trimEnd();
  return [
    line(
      columns.map(({ title }) => title),
      (text) => colourText(terminal, "grey", text),
    ),
    ...cells.map((texts, index) =>
      line(texts, (text, column) => {
        const row = rows[index];
        const colour = columns[column]?.colour;
        return row === undefined || colour === undefined ? text : colourText(terminal, colour(row), text);
      }),
    ),
  ];
}

/**
 * Returns the width of each column. Flexible columns share the width that the other columns leave. A flexible column
 * that is narrower than its share keeps its width.
 */
function fitColumns(
  columns: readonly { readonly wanted: number; readonly flexible: boolean }[],
  total: number,
): number[] {
  const fixed = columns.reduce((sum, { wanted, flexible }) => sum + (flexible ? 0 : wanted), 0);
  let remaining = total - fixed - gap * (columns.length - 1);
  const byWidth = columns
    .map((column, index) => ({ ...column, index }))
    .filter(({ flexible }) => flexible)
    .toSorted((a, b) => a.wanted - b.wanted);
  const widths = columns.map(({ wanted }) => wanted);
  for (const [position, { wanted, index }] of byWidth.entries()) {
    const share = Math.max(minFlexibleWidth, Math.floor(remaining / (byWidth.length - position)));
    widths[index] = Math.min(wanted, share);
    remaining -= widths[index] ?? 0;
  }
  return cutToTotal(widths, total);
}

/** Cuts off columns from the right if they do not fit on a very narrow terminal. */
function cutToTotal(widths: readonly number[], total: number): number[] {
  let remaining = total;
  return widths.map((wanted) => {
    const given = Math.max(0, Math.min(wanted, remaining));
    remaining -= given + gap;
    return given;
  });
}
