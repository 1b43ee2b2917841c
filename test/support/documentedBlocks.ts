/** A block of SQL on a page, and the result that the page shows below it. */
export interface DocumentedBlock {
  readonly sql: string;
  readonly result: string | undefined;
}

export const documentedBlocks = (page: string): DocumentedBlock[] =>
  [...page.matchAll(/^```sql\n(.*?)^```\n(?:\n```\n(.*?)\n```$)?/gms)].map(([, sql = "", result]) => ({ sql, result }));

export interface ShownResult {
  readonly fields: readonly { readonly name: string; readonly dataTypeID: number }[];
  readonly rows: readonly Readonly<Record<string, string | null>>[];
}

/** Shows a result as psql does, without the line that counts the rows, and without spaces at the ends of lines. */
export function shown({ fields, rows }: ShownResult): string {
  const numeric = new Set([20, 21, 23, 700, 701, 1700]);
  const shownColumns = fields.map(({ name, dataTypeID }) => {
    const cells = rows.map((row) => (row[name] ?? "").split("\n"));
    const width = Math.max(name.length, ...cells.flat().map((line) => line.length));
    return { name, cells, width, right: numeric.has(dataTypeID) };
  });
  const lines = [
    shownColumns
      .map(({ name, width }) => name.padStart(name.length + Math.floor((width - name.length) / 2)).padEnd(width))
      .map((cell) => ` ${cell} `)
      .join("|"),
    shownColumns.map(({ width }) => "-".repeat(width + 2)).join("+"),
  ];
  for (const index of rows.keys()) {
    const height = Math.max(...shownColumns.map(({ cells }) => cells[index]?.length ?? 1));
    for (let line = 0; line < height; line++) {
      lines.push(
        shownColumns
          .map(({ cells, width, right }) => {
            const cell = cells[index] ?? [];
            const text = cell[line] ?? "";
            const padded = right ? text.padStart(width) : text.padEnd(width);
            return ` ${padded}${line + 1 < cell.length ? "+" : " "}`;
          })
          .join("|"),
      );
    }
  }
  return lines.map((line) => line.trimEnd()).join("\n");
}
