/**
 * SQL that is true for the row `t` of that id. As an array's element it is looked up, whatever is known
 * of the table: with `=`, a plan from the time when the table was empty, which is kept as it grows, may
 * well read all rows in their order and compare each.
 */
export const byId = (id: string): string => `t.id = ANY (ARRAY[${id}])`;

/** SQL of `ready` where rows are looked up by their id: with the bare column its index could be read from end to end. */
export const isReady = "coalesce(ready, false)";

/**
 * SQL that is true for an id that is not in this parameter, however long it is: looked up in a table of
 * hashes. With `<> ALL` each row would be compared with each element.
 */
export const isNoneOf = (id: string, parameter: string): string =>
  `(${id} IN (SELECT unnest(${parameter}::bigint[]))) IS NOT TRUE`;
