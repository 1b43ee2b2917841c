import { columnList, type ColumnName, type TaskColumn } from "../../../shared/taskColumns.js";
import type { FoundColumn } from "./layout.js";

export interface ExpectedColumn {
  readonly name: ColumnName;
  readonly type: string;
  /**
   * Whether an existing column can be used. Its type may differ, because assignments and comparisons convert
   * implicitly.
   */
  readonly fits: (found: FoundColumn) => boolean;
  readonly check?: string;
}

const hasBase =
  (...types: readonly string[]) =>
  ({ base }: FoundColumn): boolean =>
    types.includes(base);

const anyInteger = hasBase("int2", "int4", "int8");
const processId = hasBase("int4", "int8");
const int4 = hasBase("int4");
const time = hasBase("timestamptz", "timestamp", "date");
const interval = hasBase("interval");
const boolean = hasBase("bool");
const text = ({ base, category }: FoundColumn): boolean => category === "S" && base !== "char" && base !== "name";
const unlimitedText = (found: FoundColumn): boolean => text(found) && found.maxLength === null;
const character = (found: FoundColumn): boolean => found.base === "char" || text(found);
const maxStateLength = 4;
const state = (found: FoundColumn): boolean =>
  found.kind === "e" || (text(found) && (found.maxLength ?? maxStateLength) >= maxStateLength);

const fitting: Readonly<Partial<Record<TaskColumn["type"], ExpectedColumn["fits"]>>> = {
  bigint: anyInteger,
  integer: anyInteger,
  "timestamp with time zone": time,
  interval,
  boolean,
  '"char"': character,
  text,
  state,
};

/** Columns of which less, or more, is expected than their type says. */
const exceptions: Readonly<Partial<Record<ColumnName, ExpectedColumn["fits"]>>> = {
  pid: processId,
  hash: int4,
  data: () => true,
  error: unlimitedText,
  output: unlimitedText,
  owner: unlimitedText,
};

const checkOf = ({ name, type, bounds }: TaskColumn & { readonly name: string }): string | undefined => {
  if (bounds === undefined) return undefined;
  if (bounds === "ASCII") return `${name} <= E'\\x7f'`;
  return `${name} ${bounds === "above 0" ? ">" : ">="} ${type === "interval" ? "interval '0'" : "0"}`;
};

/** The columns of the first version. Adoption never adds `state`, whose type is only for messages. */
export const expectedColumns: readonly ExpectedColumn[] = columnList
  .filter(({ since }) => since === 1)
  .map((column) => {
    const { name, type } = column;
    const check = checkOf(column);
    return {
      name,
      type: type === "state" ? "text" : type,
      fits: exceptions[name] ?? fitting[type] ?? (() => false),
      ...(check === undefined ? {} : { check }),
    };
  });

/** Columns without which a table is not adopted, because no default would suit the table's existing rows. */
export const requiredColumns: readonly ColumnName[] = ["id", "plan", "state", "input"];

export function isPgTaskHash(generated: string): boolean {
  const bare = generated.replaceAll(/[()\s]|::(?:text|character varying)/g, "");
  return bare === `hashtext"group"||COALESCEremote,''`;
}
