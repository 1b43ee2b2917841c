import type { Task } from "./task.js";

/** The columns of a task that `parseOutput` reads: its output, and those that say how the output was written. */
export type OutputColumns = Pick<Task, "output" | "header" | "delimiter" | "quote" | "escape" | "null">;

/** A row of a task's output: the values by the names of the columns. All values are text, as the server wrote them. */
export type OutputRow = Readonly<Record<string, string | null>>;

/**
 * Returns the rows of a task's output. If the task has `header`, the first line of a result with several columns names
 * them. Otherwise, and in results with one column, the names are "1", "2" and so on. A command tag such as `INSERT 0 1` is
 * a row with one column. A line with another number of columns than the one before begins another result.
 *
 * Values that contain the delimiter or line breaks are read as they were only if the task has `quote` and `escape`.
 */
export function parseOutput(task: OutputColumns): OutputRow[] {
  let width = 0;
  let names: readonly string[] = [];
  const rows: OutputRow[] = [];
  for (const record of records(task)) {
    if (record.length !== width) {
      width = record.length;
      const isHeader = task.header && width > 1;
      names = record.map((name, index) => (isHeader ? (name ?? task.null) : `${index + 1}`));
      if (isHeader) continue;
    }
    rows.push(Object.fromEntries(record.map((value, index) => [names[index] ?? "", value])));
  }
  return rows;
}

/** A quoted value may contain line breaks. */
function* records({ output, delimiter, quote, escape, null: nil }: OutputColumns): Generator<(string | null)[]> {
  if (output === null || output === "") return;
  const endsAt = (index: number): boolean =>
    index >= output.length || output[index] === delimiter || output[index] === "\n";
  let record: (string | null)[] = [];
  for (let index = 0; index <= output.length; index++) {
    const quoted = quote !== "" && output[index] === quote ? readQuoted(output, index, quote, escape, endsAt) : null;
    if (quoted === null) {
      const from = index;
      while (!endsAt(index)) index++;
      const value = output.slice(from, index);
      record.push(value === nil ? null : value);
    } else {
      record.push(quoted.value);
      index = quoted.end;
    }
    if (output[index] === delimiter) continue;
    yield record;
    record = [];
  }
}

/** Returns null if the quotes do not end, so that they are no quotes. */
function readQuoted(
  output: string,
  from: number,
  quote: string,
  escape: string,
  endsAt: (index: number) => boolean,
): { readonly value: string; readonly end: number } | null {
  let value = "";
  let kept = from + 1;
  for (let index = kept; index < output.length; index++) {
    const character = output[index];
    const next = output[index + 1];
    if (escape !== "" && character === escape && next !== undefined && (next === escape || next === quote)) {
      value += output.slice(kept, index) + next;
      kept = index + 2;
      index++;
    } else if (character === quote && endsAt(index + 1)) {
      return { value: value + output.slice(kept, index), end: index + 1 };
    }
  }
  return null;
}
