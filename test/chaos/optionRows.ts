import type { Client } from "../../src/shared/postgres/client.js";
import { judgeOptions, type OptionTask } from "./optionJudge.js";
import { hasOptions } from "./options.js";

const micros = (time: string): string => `(extract(epoch FROM ${time}) * 1e6)::float8`;

const list = (object: string, from: string): string =>
  `coalesce((SELECT jsonb_agg(${object}) FROM (SELECT * FROM ${from}) AS l), '[]')`;

/** Reads all tasks with optional columns, also those whose row is gone, and judges them. */
export async function judgeOptionRows(
  client: Client,
): Promise<{ readonly summary: string; readonly wrong: readonly string[] }> {
  await client.query(
    "CREATE INDEX ON performed (task); CREATE INDEX ON started (task); CREATE INDEX ON touched (task)",
  );
  await client.query("CREATE INDEX ON collected (task); ANALYZE");
  // The rows of successors were not noted when they were inserted. Their first try fails if they have `retry`, and neither `sqlstate` nor `overlap`.
  const { rows: tasks } = await client.query<OptionTask>(`
    SELECT i.id::text AS id, coalesce(p."group", t."group") AS group, coalesce(p.max, t.max) AS max,
      coalesce(p.key, t.key) AS key, p.after::text[] AS after, p.upon, coalesce(p.retry, t.retry, 0) AS retry,
      coalesce(p.fails, CASE WHEN t.sqlstate IS NULL AND t.retry > 0 AND t.overlap IS NOT TRUE THEN 1 END, 0) AS fails, coalesce(p.is_retried, true) AS "isRetried",
      coalesce(p.vanishes, false) AS vanishes, t.rule IS NOT NULL AS repeats, CASE WHEN p.task IS NULL THEN t.args ELSE p.args END AS args,
      CASE WHEN p.collects THEN ARRAY(SELECT value::float8 FROM collected WHERE task = i.id) END AS collected,
      ${micros("p.gap")} AS gap,
      t.state::text AS state, t.error, coalesce(t.attempt, 0) AS attempt, coalesce(jsonb_array_length(t.errors), 0) AS "keptErrors", ${micros("t.stop")} AS stop,
      ${list(`jsonb_build_object('what', what, 'at', ${micros("at")})`, "touched WHERE task = i.id ORDER BY at")} AS touches,
      ${list(
        `jsonb_build_object('begun', ${micros("begun")}, 'ended', ${micros("ended")}, 'attempt', attempt, 'given', given)`,
        "performed WHERE task = i.id ORDER BY begun",
      )} AS runs,
      ARRAY(SELECT ${micros("at")} FROM started WHERE task = i.id ORDER BY at) AS starts
    FROM (
      SELECT task AS id FROM promised UNION SELECT id FROM task WHERE ${hasOptions}
      UNION SELECT task FROM performed UNION SELECT task FROM started
    ) AS i LEFT JOIN promised AS p ON p.task = i.id LEFT JOIN task AS t ON t.id = i.id
    ORDER BY i.id`);
  return { summary: summaryOf(tasks), wrong: judgeOptions(tasks) };
}

/** Numbers that show whether the tasks did what they are for. */
function summaryOf(tasks: readonly OptionTask[]): string {
  const count = (what: string, is: (task: OptionTask) => boolean) => `${tasks.filter(is).length} ${what}`;
  return [
    count("tasks with options", () => true),
    count("done after a retry", ({ state, attempt }) => state === "DONE" && attempt > 0),
    count("failed", ({ state }) => state === "FAIL"),
    count("ran after others", ({ after, runs }) => after !== null && runs.length > 0),
    count("gone because of others", ({ error }) => error?.includes("which it waits for") === true),
    count("gone without an error", ({ state, error }) => state === "GONE" && error === null),
    count("replaced by their key", ({ error }) => error?.includes("takes its place") === true),
    count("ran with a key", ({ key, runs }) => key !== null && runs.length > 0),
    count("collected several values", ({ collected }) => (collected?.length ?? 0) > 1),
    count("with a gap", ({ starts }) => starts.length > 0),
    count("vanished", ({ state, vanishes }) => state === null && vanishes),
    ...["stop", "delete", "run again", "let go"].map((what) =>
      count(`touched: ${what}`, ({ touches }) => touches.some((touch) => touch.what === what)),
    ),
  ].join(", ");
}
