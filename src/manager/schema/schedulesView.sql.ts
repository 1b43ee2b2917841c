import { createHash } from "node:crypto";
import type { Client } from "../../shared/postgres/client.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { owedNotePattern } from "./owedTable.js";
import { margin, meanSeconds } from "./repetition.sql.js";
import { objectName, type TaskTable } from "./taskTable.js";
import { isTrustedOwner } from "./trustedOwner.sql.js";

/** The comment of the view's function begins with this text. A digest of the function and of the comments follows. */
const ownComment = "pg-task rows of a view ";

/** So many latest claims are searched for running ones. An index of these would prevent heap-only tuples. */
const maxClaimed = 10_000;

const shownTimes = 3;

/** Beyond these bounds, sums could exceed the range of dates, and one row would make the whole view fail. */
const longestRepeat = "interval '1000 years'";
const latestPlan = "'10000-01-01'::pg_catalog.timestamptz";

/**
 * SQL condition: the row has a rule, or repeats. This is the predicate of the index of schedules. Statements that name
 * a few ids express it without COALESCE, so that the server cannot choose to read this whole index for them.
 */
export const hasSchedule = (alias: string): string =>
  `coalesce(${alias}.rule IS NOT NULL OR ${alias}.repeat OPERATOR(pg_catalog.>) interval '0', false)`;

/** SQL condition: the error of the row says that its schedule could not be planned. */
const isNoted = (alias: string): string =>
  `coalesce(${alias}.error::pg_catalog.text OPERATOR(pg_catalog.~) ${literal(owedNotePattern)}, false)`;

/** SQL condition: the row has ended and owes its successor. */
export const isOwing = (alias: string): string =>
  `(${hasSchedule(alias)} AND ${alias}.owner IS NULL AND ${alias}.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['DONE', 'FAIL', 'GONE']) AND ${isNoted(alias)})`;

/** SQL of the server's reason in the note of such a row: the first line. */
export const owedReason = (alias: string): string =>
  `pg_catalog.split_part(pg_catalog.substring(${alias}.error::pg_catalog.text, ${literal(owedNotePattern.replace("(^", "(?:^").replace(".*$", "(.*)$"))}), E'\\n', 1)`;

/** SQL condition: the server has rejected the time of the rule's query, and the row waits to run it again. */
export const runsQueryAgain = (alias: string): string =>
  `(coalesce(${alias}.wait OPERATOR(pg_catalog.<) 0, false) AND ${alias}.plan OPERATOR(pg_catalog.<>) 'infinity' AND ${alias}.owner IS NULL AND ${alias}.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN' AND ${isNoted(alias)})`;

/**
 * SQL of the first `count` times of the repeating row `s` after `since`: its `base` plus multiples of `repeat`. Null if
 * they depend on when the run ends (`drift`) or exceed the bounds.
 */
export function repetitions(since: string, count: number): string {
  const passed = `pg_catalog.floor(pg_catalog.date_part('epoch', ${since} OPERATOR(pg_catalog.-) s.base)
      OPERATOR(pg_catalog./) CASE WHEN m.seconds OPERATOR(pg_catalog.<>) 0::pg_catalog.float8 THEN m.seconds END)::bigint`;
  return `CASE WHEN s.drift OR s.base IS NULL OR s.base OPERATOR(pg_catalog.>) ${latestPlan} OR s.repeat OPERATOR(pg_catalog.>) ${longestRepeat} THEN NULL ELSE ARRAY(
      SELECT r.at FROM (SELECT ${passed} AS n FROM (SELECT ${meanSeconds("s.repeat")} AS seconds) AS m) AS p,
        LATERAL pg_catalog.generate_series(greatest(1::bigint, p.n OPERATOR(pg_catalog.-) ${margin}::bigint), greatest(1::bigint, p.n) OPERATOR(pg_catalog.+) ${margin}::bigint) AS i,
        LATERAL (SELECT s.base OPERATOR(pg_catalog.+) (s.repeat OPERATOR(pg_catalog.*) i::pg_catalog.float8) AS at) AS r
      WHERE r.at OPERATOR(pg_catalog.>) ${since} ORDER BY r.at LIMIT ${count}) END`;
}

/** SQL condition: so many runs of the schedule have failed in a row that it has been paused. */
export const hasFailedTooOften = (alias: string): string =>
  `coalesce(${alias}.failures OPERATOR(pg_catalog.>=) greatest(${alias}.suspend, 1), false)`;

const firstLine = (text: string, length: number): string =>
  `pg_catalog."left"(pg_catalog.split_part(${text}, E'\\n', 1), ${length})`;

/** SQL of a query on the latest claimed rows with a schedule, of which the alias is `c`. */
export const latestClaims = (qualified: string, columns: string): string =>
  `SELECT ${columns} FROM ${qualified} AS c WHERE ${hasSchedule("c")} AND c.ready IS NULL AND c.take IS NOT NULL
          ORDER BY c.ready DESC, c.take DESC LIMIT ${maxClaimed}`;

/**
 * SQL of a query on the schedules of a table. A schedule is the row of a repeating task that waits or runs, or that has
 * ended and owes its successor. The columns are those of the row, and:
 *
 * - `base`: the time from which the schedule goes on. Null if it is unknown.
 * - `is_query`: whether the rule is a query.
 * - `computes`: whether the rule still has to be run to learn the planned time.
 * - `awaits`: whether its first run waits for other tasks, so that no time is known yet.
 * - `halted`: whether the schedule itself is paused, that is, planned for infinity for another reason.
 * - `failed_tries`, `try_error`: how many tries of the run that waits have failed, and the first line of the last
 *   error.
 * - `since`: the coming times are those after this one. If the row waits, its planned time precedes them.
 *
 * - `suspended_after`: if it is paused because so many runs in a row have failed: how many.
 * - `owed`: why the next run, or the time that the rule's query has returned, could not be written yet.
 *
 * @param withOwed whether to include the rows that owe their successors, which needs the right to read their table
 */
export function schedulesQuery({ schema, qualified, qualifiedOwed }: TaskTable, withOwed: boolean): string {
  const calendar = identifier(schema);
  const tries = `CASE WHEN t.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN' THEN greatest(t.attempt::integer, 0) ELSE 0 END`;
  const optional = `t.rule, t.zone, t.catchup IS TRUE AS catchup, t.overlap IS TRUE AS overlap, t.due, t.shift, t.suspend, t.failures,
      coalesce(t.wait OPERATOR(pg_catalog.<) 0, false) AS computes, coalesce(t.wait OPERATOR(pg_catalog.>=) 0, false) AS awaits, ${calendar}.task_rule_kind(t.rule) OPERATOR(pg_catalog.=) 'query' AS is_query`;
  // Names rather than an asterisk, so that readers need no privilege on other columns, such as `remote`.
  const stored = `c.id, c.parent, c."group", c.repeat, c.drift, c.active, c.state, c.plan, c.ready, c.max, c.owner, c.input, c.error,
            c.key, c.role, c.attempt, c.rule, c.zone, c.catchup, c.overlap, c.due, c.wait, c.shift, c.suspend, c.failures`;
  const columns = `t.id::bigint AS id, t.parent::bigint AS parent, t."group"::pg_catalog.text AS "group", t.repeat, t.drift, t.active,
      t.state::pg_catalog.text AS state, t.plan::pg_catalog.timestamptz AS plan, t.ready, t.max, t.owner, t.input::pg_catalog.text AS input,
      t.key, t.role::pg_catalog.text AS role, ${tries} AS failed_tries, CASE WHEN ${tries} OPERATOR(pg_catalog.>) 0 THEN ${firstLine("t.error::pg_catalog.text", 1000)} END AS try_error, ${optional}`;
  const owed = withOwed
    ? `
        UNION ALL
        SELECT ${columns}, ${owedReason("t")} AS owed FROM ${qualifiedOwed} AS o JOIN ${qualified} AS t ON t.id OPERATOR(pg_catalog.=) o.task WHERE ${isOwing("t")}`
    : "";
  const halted = `s.state OPERATOR(pg_catalog.=) 'PLAN' AND s.owner IS NULL AND s.plan OPERATOR(pg_catalog.=) 'infinity' AND NOT s.awaits`;
  return `SELECT s.*, ${halted} AS halted, CASE WHEN ${halted} AND ${hasFailedTooOften("s")} THEN s.failures END AS suspended_after,
      greatest(s.base, CASE WHEN s.catchup AND s.active OPERATOR(pg_catalog.<) interval '5000 years' THEN pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) s.active
        WHEN s.catchup THEN s.base ELSE pg_catalog.statement_timestamp() END) AS since
    FROM (
      SELECT w.*, CASE WHEN pg_catalog.isfinite(w.due) THEN w.due WHEN pg_catalog.isfinite(w.plan) THEN w.plan END AS base
      FROM (
        SELECT ${columns}, CASE WHEN ${runsQueryAgain("t")} THEN ${owedReason("t")} END AS owed FROM ${qualified} AS t WHERE ${hasSchedule("t")} AND t.ready IS NOT NULL
        UNION ALL
        SELECT ${columns}, NULL FROM (
          ${latestClaims(qualified, stored)}
        ) AS t WHERE t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK'])${owed}
      ) AS w
    ) AS s`;
}

/** SQL of an array with the first `count` coming times. If the schedule waits, the first is its planned time. */
export function comingTimes({ schema }: TaskTable, count: number): string {
  const computed = (most: number): string =>
    `CASE WHEN s.rule IS NULL THEN ${repetitions("s.since", most)}
        WHEN s.is_query THEN NULL
        WHEN s.shift IS NULL THEN ${identifier(schema)}.task_upcoming(s.rule, s.zone, s.since, ${most})
        ELSE ARRAY(SELECT u.at OPERATOR(pg_catalog.+) s.shift FROM
          pg_catalog.unnest(${identifier(schema)}.task_upcoming(s.rule, s.zone, s.since OPERATOR(pg_catalog.-) s.shift, ${most})) WITH ORDINALITY AS u(at, place) ORDER BY u.place) END`;
  return `CASE WHEN s.halted OR s.awaits OR s.owed IS NOT NULL THEN '{}' WHEN s.state OPERATOR(pg_catalog.<>) 'PLAN' THEN coalesce(${computed(count)}, '{}')
      WHEN s.computes THEN '{}' ELSE pg_catalog.array_cat(ARRAY[s.plan], ${computed(count - 1)}) END`;
}

/**
 * SQL condition: the row `l`, whose id is `previous`, is the last run of the schedule `s`, and not another task that
 * inserted it. After a change, the two may have nothing in common but the key.
 */
export const isLastRun = (previous = "s.parent"): string =>
  `l.id OPERATOR(pg_catalog.=) ${previous} AND (l.input::pg_catalog.text OPERATOR(pg_catalog.=) s.input OR s.repeat OPERATOR(pg_catalog.>) interval '0' AND l.repeat OPERATOR(pg_catalog.=) s.repeat
    OR l.rule OPERATOR(pg_catalog.=) s.rule OR l.key OPERATOR(pg_catalog.=) s.key)`;

/** SQL condition: the schedule `s` itself, its group or the whole table is paused. */
export const isPausedSchedule = ({ pauses }: TaskTable): string =>
  `(s.halted OR EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" IS NULL OR p."group" OPERATOR(pg_catalog.=) s."group"))`;

const columnComments: readonly (readonly [name: string, type: string, comment: string])[] = [
  ["id", "bigint", "The row that waits or runs, or that has ended and owes its next run"],
  ["group", "text", "Group name"],
  ["rule", "text", "The rule"],
  ["zone", "text", "Time zone of the rule"],
  ["repeat", "interval", "Interval after which the task repeats"],
  ["catchup", "boolean", "Whether missed times are made up for"],
  ["overlap", "boolean", "Whether runs may overlap"],
  ["state", "text", "PLAN, TAKE or WORK; how the last run ended if the next one is owed"],
  ["plan", "timestamptz", "Planned time; null if the schedule itself is paused or the time is not yet known"],
  ["next", "timestamptz[]", `Up to ${shownTimes} coming times`],
  ["paused", "boolean", "Whether the schedule, its group or the table is paused"],
  ["last_id", "bigint", "Id of the previous run, if its row still exists"],
  ["last_state", "text", "State of the previous run"],
  ["last_stop", "timestamptz", "When the previous run ended"],
  ["last_error", "text", "First line of the error of the previous run"],
  ["input", "text", "First line of input, up to 200 characters"],
  // A view that exists can get further columns only at its end.
  ["key", "text", "The key"],
  ["failed_tries", "integer", "How many tries of the run that waits have failed"],
  ["try_error", "text", "First line of the error of the last of these tries"],
  ["owed", "text", "Why the next run could not be planned yet although the row has ended; null if this is not so"],
  ["role", "text", "The role that it runs as, in a table with users"],
];

/** A single SELECT, so that the server inlines the function. */
export function functionStatement(table: TaskTable): string {
  const { qualified } = table;
  const columns = columnComments.map(([name, type]) => `${identifier(name)} ${type}`).join(", ");
  const body = `
  SELECT s.id, s."group", s.rule, s.zone, CASE WHEN s.repeat OPERATOR(pg_catalog.>) interval '0' THEN s.repeat END, s.catchup, s.overlap, s.state,
    CASE WHEN NOT s.computes AND NOT s.halted AND NOT s.awaits AND s.owed IS NULL THEN s.plan END,
    ${comingTimes(table, shownTimes)},
    ${isPausedSchedule(table)},
    l.id::bigint, l.state::pg_catalog.text, l.stop::pg_catalog.timestamptz, ${firstLine("l.error::pg_catalog.text", 1000)},
    ${firstLine("pg_catalog.btrim(s.input, E' \\n\\t\\r')", 200)}, s.key,
    s.failed_tries, s.try_error, s.owed, s.role
  FROM (${schedulesQuery(table, true)}) AS s LEFT JOIN ${qualified} AS l
    ON ${isLastRun("CASE WHEN s.owed IS NULL THEN s.parent ELSE s.id END")}`;
  return `CREATE OR REPLACE FUNCTION ${table.qualifiedSchedulesRows}() RETURNS TABLE (${columns}) LANGUAGE sql STABLE AS ${literal(body)}`;
}

const formerName = ({ table }: TaskTable): string => objectName(table, "schedules_former");

/** Returns whether an existing view has been replaced. A user's table, type or view with the name of the view stays. */
export async function ensureSchedulesView(client: Client, table: TaskTable): Promise<boolean> {
  const { schema, schedulesView, qualifiedSchedules: view } = table;
  const create = functionStatement(table);
  // With the comments, so that existing views get those of this version.
  const digest = createHash("sha256").update(create).update(JSON.stringify(columnComments)).digest("hex").slice(0, 16);
  const { rows } = await client.query<{
    comment: string | null;
    former: boolean;
    view: boolean;
    taken: boolean;
    invoker: boolean;
  }>(
    `SELECT (SELECT pg_catalog.obj_description(p.oid, 'pg_proc') FROM pg_catalog.pg_proc AS p
         WHERE p.oid = pg_catalog.to_regprocedure($1) AND ${isTrustedOwner("p.proowner", "$4")}) AS comment,
       EXISTS (SELECT FROM pg_catalog.pg_proc AS p WHERE p.oid = pg_catalog.to_regprocedure($1) AND p.proargnames <> $5::text[]) AS former,
       c.oid IS NOT NULL AS view, current_setting('server_version_num')::integer >= 150000 AS invoker,
       c.oid IS NOT NULL AND (c.relkind <> 'v' OR pg_catalog.concat(pg_catalog.obj_description(c.oid, 'pg_class')) NOT LIKE 'pg-task view%')
         OR EXISTS (SELECT FROM pg_catalog.pg_type AS t WHERE t.typrelid = 0 AND t.typname = $3 AND t.typnamespace = n.oid) AS taken
     FROM pg_catalog.pg_namespace AS n LEFT JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = $3
     WHERE n.nspname = $2`,
    [`${table.qualifiedSchedulesRows}()`, schema, schedulesView, table.qualified, columnComments.map(([name]) => name)],
  );
  const { comment = null, former = false, view: exists = false, taken = false, invoker = false } = rows[0] ?? {};
  const current = comment === `${ownComment}${digest}`;
  if (current && (exists || taken)) return false;
  const statements = [
    // A function cannot get other columns, and cannot be dropped while the view uses it. The view is replaced, not dropped,
    // so that it keeps its privileges.
    ...(former ? [`ALTER FUNCTION ${table.qualifiedSchedulesRows}() RENAME TO ${identifier(formerName(table))}`] : []),
    create,
    `COMMENT ON FUNCTION ${table.qualifiedSchedulesRows}() IS '${ownComment}${digest}'`,
    `GRANT EXECUTE ON FUNCTION ${table.qualifiedSchedulesRows}() TO PUBLIC`,
  ];
  if (!taken) {
    statements.push(
      `CREATE OR REPLACE VIEW ${view} AS SELECT * FROM ${table.qualifiedSchedulesRows}()`,
      `COMMENT ON VIEW ${view} IS 'pg-task view: schedules, with their coming times and last outcomes'`,
      ...columnComments.map(([name, , text]) => `COMMENT ON COLUMN ${view}.${identifier(name)} IS ${literal(text)}`),
    );
    if (invoker) statements.push(`ALTER VIEW ${view} SET (security_invoker = true)`);
  }
  if (former) statements.push(`DROP FUNCTION ${identifier(schema)}.${identifier(formerName(table))}()`);
  await client.query(statements.join(";\n"));
  return exists && !taken;
}
