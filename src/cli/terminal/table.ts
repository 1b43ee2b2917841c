import { copyField, truncate, padToWidth, displayWidth, wrap } from "./format.js";
import { printableLine } from "../../shared/printable.js";
import { colourText, type Colour, type Terminal } from "./terminal.js";

/** If the output is not a terminal, the column is a field of a tab-separated line. */
export interface TableColumn<Row> {
  readonly title: string;
  readonly value: (row: Row) => string | null;
  /** Returns what a terminal shows instead of `value`. */
  readonly display?: (row: Row) => string;
  readonly colour?: (row: Row) => Colour | null;
  readonly alignRight?: true;
  readonly flexible?: true;
  /** Width that a flexible column keeps as long as the others can shrink. Default: 4. */
  readonly keeps?: number;
  /** Returns what is shown below the row if the column is too narrow for its text. Null if nothing important is cut. */
  readonly below?: (row: Row) => string | null;
  /** Columns with a number are left out if the table is too wide for the widths that columns keep, 1 first. */
  readonly leftOut?: number;
}

const gap = 2;
const minFlexibleWidth = 4;

/** For a terminal, a table with titles that fits its width. Otherwise a line in COPY's text format for each row. */
export function renderTable<Row>(
  terminal: Terminal,
  columns: readonly TableColumn<Row>[],
  rows: readonly Row[],
): string[] {
  if (!terminal.isTerminal) {
    return rows.map((row) => columns.map(({ value }) => copyField(value(row))).join("\t"));
  }
  const cells = rows.map((row) => columns.map((column) => cellText(column, row)));
  const widths = fitColumns(
    columns.map((column) => ({
      wanted: wantedWidth(column, rows),
      flexible: column.flexible === true,
      keeps: keptWidth(column),
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
    ...rows.flatMap((row, index) => {
      const texts = cells[index] ?? [];
      return [
        line(texts, (text, column) => colourText(terminal, columns[column]?.colour?.(row) ?? null, text)),
        ...columns.flatMap((column, place) => {
          const isCut = displayWidth(texts[place] ?? "") > (widths[place] ?? 0);
          return isCut ? linesBelow(terminal, column, row) : [];
        }),
      ];
    }),
  ];
}

function linesBelow<Row>(terminal: Terminal, { below, colour }: TableColumn<Row>, row: Row): string[] {
  const text = below?.(row) ?? null;
  if (text === null) return [];
  const indent = " ".repeat(gap);
  return wrap(printableLine(text), terminal.columns - gap).map(
    (line) => `${indent}${colourText(terminal, colour?.(row) ?? null, line)}`,
  );
}

/** Leaves out columns until the terminal is wide enough for the widths that the others keep. */
export function fittingColumns<Row>(
  terminal: Terminal,
  columns: readonly TableColumn<Row>[],
  rows: readonly Row[],
): readonly TableColumn<Row>[] {
  if (!terminal.isTerminal) return columns;
  const least = (column: TableColumn<Row>): number => {
    const wanted = wantedWidth(column, rows);
    return gap + (column.flexible === true ? Math.min(wanted, keptWidth(column)) : wanted);
  };
  const widths = new Map(columns.map((column) => [column, least(column)]));
  const kept = new Set(columns);
  const optional = columns.filter(({ leftOut }) => leftOut !== undefined);
  for (const column of optional.toSorted((a, b) => (a.leftOut ?? 0) - (b.leftOut ?? 0))) {
    const needed = [...kept].reduce((sum, each) => sum + (widths.get(each) ?? 0), -gap);
    if (needed > terminal.columns) kept.delete(column);
  }
  return columns.filter((column) => kept.has(column));
}

const cellText = <Row>({ value, display }: TableColumn<Row>, row: Row): string =>
  printableLine(display?.(row) ?? value(row) ?? "");

const wantedWidth = <Row>(column: TableColumn<Row>, rows: readonly Row[]): number =>
  Math.max(displayWidth(column.title), ...rows.map((row) => displayWidth(cellText(column, row))));

const keptWidth = <Row>({ keeps = minFlexibleWidth }: TableColumn<Row>): number => keeps;

interface Wanted {
  readonly wanted: number;
  readonly flexible: boolean;
  readonly keeps: number;
}

/**
 * Flexible columns share the width that the other columns leave: each begins with what it keeps, unless there is too
 * little for all of these, and the narrowest ones that want more grow first; of several, the one that wants most.
 */
function fitColumns(columns: readonly Wanted[], total: number): number[] {
  const available = total - gap * (columns.length - 1);
  const widthsWith = (least: (column: Wanted) => number) =>
    columns.map((column) => ({
      ...column,
      width: column.flexible ? Math.min(column.wanted, least(column)) : column.wanted,
    }));
  const leftBy = (fitted: readonly { readonly width: number }[]): number =>
    fitted.reduce((left, { width }) => left - width, available);
  const kept = widthsWith(({ keeps }) => keeps);
  const fitted = leftBy(kept) >= 0 ? kept : widthsWith(() => minFlexibleWidth);
  for (let left = leftBy(fitted); left > 0; left -= 1) {
    const [narrowest] = fitted
      .filter(({ flexible, width, wanted }) => flexible && width < wanted)
      .toSorted((one, other) => one.width - other.width || other.wanted - one.wanted);
    if (narrowest === undefined) break;
    narrowest.width += 1;
  }
  return cutToTotal(
    fitted.map(({ width }) => width),
    total,
  );
}

function cutToTotal(widths: readonly number[], total: number): number[] {
  let remaining = total;
  return widths.map((wanted) => {
    const given = Math.max(0, Math.min(wanted, remaining));
    remaining -= given + gap;
    return given;
  });
}
