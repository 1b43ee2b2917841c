import type { FoundColumn } from "./layout.js";

/** A column that a task table has to have. */
export interface ExpectedColumn {
  readonly name: string;
  /** What it is added as. */
  readonly type: string;
  /** Whether what is there will do: assignments and comparisons convert by themselves. */
  readonly fits: (found: FoundColumn) => boolean;
  /** What an added column is checked for. */
  readonly check?: string;
}

const oneOf =
  (...types: readonly string[]) =>
  ({ base }: FoundColumn): boolean =>
    types.includes(base);

const whole = oneOf("int2", "int4", "int8");
const process = oneOf("int4", "int8");
const integer = oneOf("int4");
const time = oneOf("timestamptz", "timestamp", "date");
const interval = oneOf("interval");
const boolean = oneOf("bool");
const text = ({ base, category }: FoundColumn): boolean =>
  category === "S" && base !== "char" && base !== "name";
const anyLength = (found: FoundColumn): boolean => text(found) && found.limit === null;
const character = (found: FoundColumn): boolean => found.base === "char" || text(found);
const longestState = 4;
const state = (found: FoundColumn): boolean =>
  found.kind === "e" || (text(found) && (found.limit ?? longestState) >= longestState);

const column = (
  name: string,
  type: string,
  fits: ExpectedColumn["fits"],
  check?: string,
): ExpectedColumn => ({ name, type, fits, ...(check === undefined ? {} : { check }) });

/** Every column of the first migration but state, whose type is the schema's own where it is made. */
export const expectedColumns: readonly ExpectedColumn[] = [
  column("id", "bigint", whole),
  column("parent", "bigint", whole),
  column("plan", "timestamp with time zone", time),
  column("take", "timestamp with time zone", time),
  column("start", "timestamp with time zone", time),
  column("stop", "timestamp with time zone", time),
  column("active", "interval", interval, "active > interval '0'"),
  column("live", "interval", interval, "live >= interval '0'"),
  column("repeat", "interval", interval, "repeat >= interval '0'"),
  column("timeout", "interval", interval, "timeout >= interval '0'"),
  column("count", "integer", whole, "count >= 0"),
  column("hash", "integer", integer),
  column("max", "integer", whole),
  column("pid", "integer", process),
  column("crash", "integer", whole),
  column("state", "text", state),
  column("ready", "boolean", boolean),
  column("delete", "boolean", boolean),
  column("drift", "boolean", boolean),
  column("header", "boolean", boolean),
  column("save", "boolean", boolean),
  column("string", "boolean", boolean),
  column("atomic", "boolean", boolean),
  column("delimiter", '"char"', character, `delimiter <= E'\\x7f'`),
  column("escape", '"char"', character, `escape <= E'\\x7f'`),
  column("quote", '"char"', character, `quote <= E'\\x7f'`),
  column("data", "text", () => true),
  column("error", "text", anyLength),
  column("group", "text", text),
  column("input", "text", text),
  column("null", "text", text),
  column("output", "text", anyLength),
  column("owner", "text", anyLength),
  column("remote", "text", text),
];

/** Without these a table is no task table: nothing could stand for them in the rows that are there. */
export const indispensable: readonly string[] = ["id", "plan", "state", "input"];

/** Whether a column hash is made as pg-task makes it, in whatever way it is written down. */
export function isOurHash(generated: string): boolean {
  const bare = generated.replaceAll(/[()\s]|::(?:text|character varying)/g, "");
  return bare === `hashtext"group"||COALESCEremote,''`;
}
