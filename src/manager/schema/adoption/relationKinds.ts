const kinds: ReadonlyMap<string, string> = new Map([
  ["v", "a view"],
  ["m", "a materialized view"],
  ["f", "a foreign table"],
  ["i", "an index"],
  ["I", "an index"],
  ["S", "a sequence"],
  ["c", "a composite type"],
  ["t", "a TOAST table"],
]);

/**
 * What a relation is that is no table, for messages.
 *
 * @param kind as in pg_class
 */
export const kindOf = (kind: string): string => kinds.get(kind) ?? "no table";
