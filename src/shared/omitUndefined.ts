/** Returns a copy of the object without the keys whose value is undefined. */
export function omitUndefined<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const copy = {};
  // This runs several times for each entry of a configuration, of which there can be very many.
  for (const [key, value] of Object.entries(object)) if (value !== undefined) Reflect.set(copy, key, value);
  return copy;
}
