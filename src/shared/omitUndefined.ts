export function omitUndefined<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const copy = {};
  // This runs several times for each entry of a configuration.
  for (const [key, value] of Object.entries(object)) if (value !== undefined) Reflect.set(copy, key, value);
  return copy;
}
