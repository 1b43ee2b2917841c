import { types } from "node:util";
import { PgTaskError, errorMessage } from "../../shared/errors.js";
import { arrayLiteral, textArrayLiteral } from "../../shared/postgres/arrayText.js";
import { describeValue } from "../../shared/describeValue.js";
import { refuseUnknownKeys } from "../../shared/refuseUnknownKeys.js";
import { unstorablePart } from "../../shared/storableText.js";
import { intervals, newTaskKeys, type NewTask, type OwnValue } from "../newTask.js";
import { maxArgsBytes } from "../../manager/schema/options/valueChecks.sql.js";
import { isTaskColumn } from "../../shared/taskColumns.js";
import { findLongCharacter, type CopiedValues, type NewRow } from "./addTask.js";

/** A task, perhaps without an input, and with any `args`. Whether JSON can represent these is checked. */
type GivenTask = Partial<Omit<NewTask, "args">> & { readonly args?: unknown };

/**
 * @param copied values that are copied from another row; the task does not need these
 * @throws PgTaskError USAGE for a task with a wrong property, without input or with contradicting values; TASK_REJECTED
 * for values that PostgreSQL cannot store
 */
export function toRow(task: GivenTask | string, copied?: CopiedValues): NewRow {
  const { args, delay, columns: own = {}, ...columns } = typeof task === "string" ? { input: task } : expectKnown(task);
  const { input }: { input?: unknown } = columns;
  const hasInput = typeof input === "string" && input.trim() !== "";
  if (!hasInput && (input !== undefined || copied?.columns.includes("input") !== true)) {
    const got = input === undefined ? "nothing" : describeValue(input);
    throw new PgTaskError("USAGE", `expected the task's SQL in input, got ${got}`);
  }
  refuseNone(own, delay);
  refuseLengths({ ...columns, delay });
  if (delay !== undefined && columns.plan !== undefined) {
    throw new PgTaskError("USAGE", "expected one of plan and delay, got both");
  }
  refuseNotOwn(own, { ...columns, args });
  const values = new Map<string, string | null>();
  for (const [name, value] of [...Object.entries<OwnValue | undefined>(columns), ...Object.entries(own)]) {
    if (value !== undefined) values.set(name, columnText(value, name));
  }
  if (args !== undefined) values.set("args", args === null ? null : argsText(args));
  refuseTexts([...values, ["delay", delay]]);
  const long = findLongCharacter(values);
  const taskColumns = [...values.keys()].filter((name) => !Object.hasOwn(own, name));
  if (long === undefined) return { columns: values, taskColumns, delay, copied };
  throw new PgTaskError(
    "TASK_REJECTED",
    `expected ${long} with one ASCII character, got ${JSON.stringify(values.get(long))}`,
  );
}

/**
 * The server would refuse them only after it has read all of them. It counts the bytes of its own form of the JSON,
 * which is never shorter than this one in characters.
 */
function argsText(args: unknown): string {
  const text = jsonText(args, "args", refuseText);
  if (text.length > maxArgsBytes) throw new PgTaskError("TASK_REJECTED", "args is larger than 1 MB");
  return text;
}

function refuseTexts(values: Iterable<readonly [name: string, value: string | null | undefined]>): void {
  for (const [name, value] of values) refuseText(value ?? "", name);
}

/** The server would not say in which value the text is that PostgreSQL cannot store. */
function refuseText(text: string, place: string): void {
  const problem = unstorablePart(text);
  if (problem === null) return;
  throw new PgTaskError("TASK_REJECTED", `expected ${place} without ${problem}, which PostgreSQL cannot store`);
}

function refuseNone(own: unknown, delay: unknown): void {
  if (!isRecord(own)) throw new PgTaskError("USAGE", `expected columns to be an object, got ${describeValue(own)}`);
  if (!isPropertyBag(own)) {
    const wanted = "expected columns to be an object with a property for each column, got another object";
    throw new PgTaskError("USAGE", wanted);
  }
  if (delay === null) throw new PgTaskError("USAGE", "expected delay to be an interval, got null");
}

const isRecord = (given: unknown): given is object =>
  typeof given === "object" && given !== null && !Array.isArray(given);

function expectKnown(task: GivenTask): GivenTask {
  if (!isRecord(task) || types.isPromise(task)) {
    throw new PgTaskError("USAGE", `expected a task: its SQL, or an object with input, got ${describeValue(task)}`);
  }
  refuseUnknownKeys(task, newTaskKeys, "a property of a task (columns of your own belong in its property columns)");
  return task;
}

/** PostgreSQL would take a number to mean seconds, and programs usually mean milliseconds. */
function refuseLengths(given: Readonly<Record<string, unknown>>): void {
  for (const name of intervals) {
    const value = given[name];
    if (value === undefined || value === null || typeof value === "string") continue;
    const length = Number(value);
    const examples = length === 0 ? '"0"' : `"${length} ms" or "${length} seconds"`;
    const hint = typeof value === "number" && Number.isFinite(value) ? `: write ${examples}` : "";
    throw new PgTaskError(
      "USAGE",
      `expected ${name} to be an interval as text, such as "5 minutes", got ${describeValue(value)}${hint}`,
    );
  }
}

function refuseNotOwn(own: object, given: Readonly<Record<string, unknown>>): void {
  const names = Object.entries(own).flatMap(([name, value]) => (value === undefined ? [] : [name]));
  if (names.includes("")) throw new PgTaskError("USAGE", "expected names of columns in columns, got an empty one");
  for (const name of names) {
    const problem = unstorablePart(name);
    if (problem === null) continue;
    const got = JSON.stringify(name);
    throw new PgTaskError("USAGE", `expected names of columns in columns without ${problem}, got ${got}`);
  }
  const twice = names.find((name) => given[name] !== undefined);
  if (twice !== undefined) throw new PgTaskError("USAGE", `expected column ${twice} once, got it in columns, too`);
  const taken = names.find(isTaskColumn);
  if (taken === undefined) return;
  const instead = Object.hasOwn(newTaskKeys, taken)
    ? `use the task's property ${taken} instead`
    : "only pg-task gives it values";
  throw new PgTaskError(
    "USAGE",
    `expected only columns of your own in columns, got ${taken}, which is pg-task's: ${instead}`,
  );
}

function columnText(value: OwnValue, name: string): string | null {
  if (value === null || typeof value === "string") return value;
  if (value instanceof Date) return dateText(value);
  if (value instanceof Uint8Array) return `\\x${Buffer.from(value).toString("hex")}`;
  if (Array.isArray(value)) return arrayText(value, name);
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  return jsonText(value, name);
}

function arrayText(elements: readonly unknown[], name: string): string {
  const texts = elements.map((element, n) => {
    if (element === null || element === undefined) return null;
    if (element instanceof Date) return dateText(element);
    if (typeof element === "bigint" || typeof element === "number") return String(element);
    return typeof element === "string" ? element : jsonText(element, `${name}[${n}]`);
  });
  const areNumbers = elements.every((element) => typeof element === "number" || typeof element === "bigint");
  return areNumbers ? arrayLiteral(texts) : textArrayLiteral(texts);
}

function dateText(date: Date): string {
  if (Number.isNaN(date.getTime())) throw new PgTaskError("USAGE", "expected a valid date, got an invalid one");
  return date.toISOString();
}

/** An object or array whose values are being converted, and its place, such as `args[0].lines`. */
interface Holder {
  readonly value: unknown;
  readonly place: string;
}

/**
 * JSON.stringify leaves out what JSON cannot represent, or replaces it with null or `{}`, and the task would run with
 * another value than was given. Only properties of objects that are undefined are left out, as usual.
 *
 * @param checkText called with each text and each name of a property, and its place
 * @throws PgTaskError USAGE for a value that JSON cannot represent, with its place
 */
function jsonText(value: unknown, place: string, checkText: (text: string, place: string) => void = () => {}): string {
  const holders: Holder[] = [];
  /** JSON.stringify visits values depth first. */
  const placeOf = (holder: unknown, key: string): string => {
    if (holders.length === 0) return place;
    while (holders.length > 1 && holders.at(-1)?.value !== holder) holders.pop();
    const { place: outer = place } = holders.at(-1) ?? {};
    if (Array.isArray(holder)) return `${outer}[${key}]`;
    return /^[a-z_$][\w$]*$/i.test(key) ? `${outer}.${key}` : `${outer}[${JSON.stringify(key)}]`;
  };
  try {
    return JSON.stringify(value, function check(this: object, key: string, converted: unknown): unknown {
      const at = placeOf(this, key);
      // What toJSON has made of it no longer says what it was. A Buffer becomes an object with its bytes.
      const given: unknown = Reflect.get(this, key);
      const isAbsent = given === undefined && holders.length > 0 && !Array.isArray(this);
      const problem = isAbsent ? null : (problemOf(given) ?? problemOf(converted) ?? lossOf(converted));
      if (problem !== null) throw new PgTaskError("USAGE", `${expected(at)}, got ${problem}`);
      if (converted !== undefined) checkText(key, at);
      if (typeof converted === "string") checkText(converted, at);
      if (typeof converted === "object" && converted !== null) holders.push({ value: converted, place: at });
      return converted;
    });
  } catch (error) {
    if (error instanceof PgTaskError) throw error;
    throw new PgTaskError("USAGE", `${expected(place)}: ${errorMessage(error)}`, { cause: error });
  }
}

const expected = (place: string): string => `expected ${place} to be a value that JSON can represent`;

function problemOf(value: unknown): string | null {
  switch (typeof value) {
    case "undefined":
      return "undefined: use null";
    case "function":
    case "symbol":
      return `a ${typeof value}`;
    case "bigint":
      return "a bigint: give it as text";
    case "number":
      return Number.isFinite(value) ? null : `${value}: give it as text, or use null`;
    case "object":
      return value === null ? null : objectProblem(value);
    default:
      return null;
  }
}

/** Whether this is an object whose own enumerable properties are all that it contains, as far as this can be told. */
export const isPropertyBag = (value: object): boolean => objectProblem(value) === null && lossOf(value) === null;

/** Describes an object that JSON never represents, whatever its toJSON makes of it. */
function objectProblem(value: object): string | null {
  if (ArrayBuffer.isView(value) || types.isAnyArrayBuffer(value)) {
    return 'bytes: give them as text, such as a Buffer\'s toString("hex")';
  }
  if (types.isMap(value) || types.isSet(value)) return "a Map or Set: give an object or array";
  if (types.isPromise(value)) return "a promise: await it";
  if (types.isDate(value) && Number.isNaN(value.getTime())) return "an invalid date";
  return null;
}

/**
 * JSON keeps properties that are the object's own and enumerable: nothing of a RegExp, and of an Error not its message.
 *
 * @param value what toJSON has returned if there is one: JSON.stringify does not call that of the result
 */
function lossOf(value: unknown): string | null {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  if (types.isBoxedPrimitive(value)) return problemOf(value.valueOf());
  if (value instanceof Error || types.isNativeError(value)) return "an Error: give its message";
  if (types.isRegExp(value)) return "a RegExp: give its source";
  if (isPlain(value) || Object.keys(value).length > 0) return null;
  return "an object without properties that JSON keeps: give what it contains";
}

/** Whether this is an object literal or one like it, also of another realm, whose Object.prototype is another one. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || (typeof prototype === "object" && Object.getPrototypeOf(prototype) === null);
}
