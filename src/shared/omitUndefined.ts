/** Returns a copy of the object without the keys whose value is undefined. */
export function omitUndefined<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const pairs = Object.entries(object).filter(([, value]) => value !== undefined);
  return Object.assign({}, ...pairs.map(([key, value]) => ({ [key]: value })));
}
