/**
 * SQL of a query that notifies the channels of tasks that have ended (column `tell`), in their order, and returns no
 * rows. The server sends the notifications when the statement that writes the ends is committed.
 *
 * @param ended SQL of a query with the columns id, stop, tell and outcome
 */
export const tellEnds = (ended: string): string =>
  `SELECT n.id FROM (SELECT e.id, pg_notify(e.tell, concat(e.id, ' ', e.outcome)) IS NULL AS told
    FROM (${ended} ORDER BY stop, id) AS e WHERE e.tell IS NOT NULL) AS n WHERE n.told IS NULL`;
