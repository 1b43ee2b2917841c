import { types } from "node:util";
import { errorMessage, PgTaskError } from "../../shared/errors.js";

/** An object or array whose values are being converted, and its place, such as `args[0].lines`. */
interface Holder {
  readonly value: unknown;
  readonly place: string;
}

/**
 * Converts a value to JSON. JSON.stringify leaves out what JSON cannot represent, or replaces it with null or `{}`, and
 * the task would then run with another value than the program has given. Only properties of objects that are undefined are
 * left out, as usual.
 *
 * @param place of the value, such as `args`
 * @param checkText called with each text and each name of a property, and its place; what it throws is thrown
 * @throws PgTaskError USAGE for a value that JSON cannot represent, with its place
 */
export function jsonText(
  value: unknown,
  place: string,
  checkText: (text: string, place: string) => void = () => {},
): string {
  const holders: Holder[] = [];
  /** Returns the place of a value. JSON.stringify visits values depth first. */
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

/** Describes a value that JSON cannot represent. Returns null for any other value. */
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
 * Describes an object of which JSON would keep nothing, such as a RegExp, or not what matters, which is an Error's message.
 * JSON keeps properties that are the object's own and enumerable. Returns null for any other value.
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
