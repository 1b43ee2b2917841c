import type { TaskTable } from "../table.js";

/**
 * SQL that plans anew, after runs whose `max` is negative, what is due in their groups with a
 * negative `max`: each by its own, in ms, from the stop with drift, else at the first of its plan
 * and plan + n × |max| after the stop.
 *
 * @param ended name of a part of the statement, with columns hash, max and stop.
 */
export function pauseUpdate({ qualified }: TaskTable, ended: string): string {
  const pause = `interval '1 ms' * abs(t.max::float8)`;
  const passed = `extract(epoch FROM p.stop - t.plan)::float8 * 1000 / abs(t.max::float8)`;
  const next = `
    CASE WHEN t.drift OR NOT isfinite(t.plan) THEN p.stop + ${pause} ELSE t.plan + ${pause} * greatest(0, floor(${passed}) + 1) END`;
  return `
  UPDATE ${qualified} AS t SET plan = ${next}, ready = ${next} <= now()
  FROM (SELECT hash, max(stop) AS stop FROM ${ended} WHERE max < 0 GROUP BY hash) AS p
  WHERE t.hash = p.hash AND t.id = ANY (ARRAY(
    SELECT id FROM ${qualified}
    WHERE ready AND max < 0 AND hash = ANY (ARRAY(SELECT hash FROM ${ended} WHERE max < 0))
    FOR NO KEY UPDATE SKIP LOCKED))`;
}
