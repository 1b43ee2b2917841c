import type { Client } from "../../src/shared/postgres/client.js";

/** The result of a statement, with all values as the server's text. */
export interface TextResult {
  readonly fields: readonly { readonly name: string; readonly dataTypeID: number }[];
  readonly rows: readonly Readonly<Record<string, string | null>>[];
}

/** Executes statements, and returns the result of each. */
export async function textResults(client: Client, sql: string): Promise<readonly TextResult[]> {
  const types = { getTypeParser: () => (value: string) => value };
  const answer: TextResult | readonly TextResult[] = await client.query({ text: sql, types });
  return [answer].flat();
}

/** Shows a result as psql does, without the line that counts the rows, and without spaces at the ends of lines. */
export function psqlTable({ fields, rows }: TextResult): string {
  const numeric = new Set([20, 21, 23, 700, 701, 1700]);
  const shown = fields.map(({ name, dataTypeID }) => {
    const cells = rows.map((row) => (row[name] ?? "").split("\n"));
    const width = Math.max(name.length, ...cells.flat().map((line) => line.length));
    return { name, cells, width, right: numeric.has(dataTypeID) };
  });
  const lines = [
    shown
      .map(({ name, width }) => name.padStart(name.length + Math.floor((width - name.length) / 2)).padEnd(width))
      .map((cell) => ` ${cell} `)
      .join("|"),
    shown.map(({ width }) => "-".repeat(width + 2)).join("+"),
  ];
  for (const index of rows.keys()) {
    const height = Math.max(...shown.map(({ cells }) => cells[index]?.length ?? 1));
    for (let line = 0; line < height; line++) {
      lines.push(
        shown
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
