import { field, printableLine } from "./escape.js";
import { coloured, type Colour, type Terminal } from "./terminal.js";
import { cut, pad, width } from "./displayWidth.js";

/** A column of a table on a terminal, or a field of a line elsewhere. */
export interface TableColumn<Row> {
  readonly title: string;
  readonly value: (row: Row) => string | null;
  /** What a terminal shows instead. */
  readonly shown?: (row: Row) => string;
  readonly colour?: (row: Row) => Colour | null;
  readonly right?: true;
  /** Gives way when the table is too wide. */
  readonly flexible?: true;
}

const gap = 2;
const narrowest = 4;

/**
 * Rows for a reader, when this is a terminal: under titles, each on one line as wide as the terminal.
 * Elsewhere for programs: one line for each row, its fields between tabs as COPY writes them.
 */
export function table<Row>(
  terminal: Terminal,
  columns: readonly TableColumn<Row>[],
  rows: readonly Row[],
): string[] {
  if (!terminal.isTerminal) {
    return rows.map((row) => columns.map(({ value }) => field(value(row))).join("\t"));
  }
  const cells = rows.map((row) =>
    columns.map(({ value, shown }) => printableLine(shown?.(row) ?? value(row) ?? "")),
  );
  const widths = fit(
    columns.map(({ title, flexible }, index) => ({
      wanted: Math.max(width(title), ...cells.map((line) => width(line[index] ?? ""))),
      flexible: flexible === true,
    })),
    terminal.columns,
  );
  const line = (
    texts: readonly string[],
    paint: (text: string, column: number) => string,
  ): string =>
    texts
      .map((text, index) => {
        const { right } = columns[index] ?? {};
        const columnsWide = widths[index] ?? 0;
        const last = index === texts.length - 1 && right !== true;
        const shown = cut(text, columnsWide);
        return paint(last ? shown : pad(shown, columnsWide, right === true), index);
      })
      .join(" ".repeat(gap))
      .trimEnd();
  return [
    line(
      columns.map(({ title }) => title),
      (text) => coloured(terminal, "grey", text),
    ),
    ...cells.map((texts, index) =>
      line(texts, (text, column) => {
        const row = rows[index];
        const colour = columns[column]?.colour;
        return row === undefined || colour === undefined
          ? text
          : coloured(terminal, colour(row), text);
      }),
    ),
  ];
}

/** The flexible columns share what the others leave, the narrow ones of them as they are. */
function fit(
  columns: readonly { readonly wanted: number; readonly flexible: boolean }[],
  total: number,
): number[] {
  const fixed = columns.reduce((sum, { wanted, flexible }) => sum + (flexible ? 0 : wanted), 0);
  let room = total - fixed - gap * (columns.length - 1);
  const byWidth = columns
    .map((column, index) => ({ ...column, index }))
    .filter(({ flexible }) => flexible)
    .toSorted((a, b) => a.wanted - b.wanted);
  const widths = columns.map(({ wanted }) => wanted);
  for (const [place, { wanted, index }] of byWidth.entries()) {
    const share = Math.max(narrowest, Math.floor(room / (byWidth.length - place)));
    widths[index] = Math.min(wanted, share);
    room -= widths[index] ?? 0;
  }
  return within(widths, total);
}

/** What a very narrow terminal has no room for is left out from the right. */
function within(widths: readonly number[], total: number): number[] {
  let left = total;
  return widths.map((wanted) => {
    const given = Math.max(0, Math.min(wanted, left));
    left -= given + gap;
    return given;
  });
}
