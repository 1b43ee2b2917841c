import { literal } from "../../../shared/postgres/quoting.js";
import { columnNames, columnsWith, type ColumnName } from "../../../shared/taskColumns.js";
import { changeStatement, type Change } from "../changes.sql.js";
import { keyColumns, ofRole, ownKeyHolderQuery, roleColumn } from "../keyIndex.js";
import { hasSchedule, latestClaims } from "../schedulesView.sql.js";
import type { TaskTable } from "../taskTable.js";
import { nameArray, refuseKeys, settings } from "./options.sql.js";

const purpose = "changes of tasks";

function changeFunction(name: string, parameter: string, comment: string, body: string) {
  const [, type = ""] = parameter.split(" ");
  return {
    purpose,
    comment: `pg-task ${comment} `,
    signature: `${name}(${type})`,
    create: `CREATE OR REPLACE FUNCTION ${name}(${parameter}) RETURNS boolean LANGUAGE plpgsql ${settings} AS ${literal(body)}`,
  };
}

const makeChange = (table: TaskTable, change: Change, id: string): string =>
  changeStatement(table, change, { ids: `ARRAY[${id}]`, waits: true, into: " INTO result" });

/** False if the task has ended, or if its row no longer exists. */
export const stop = (table: TaskTable) =>
  changeFunction(
    table.qualifiedStop,
    "id bigint",
    "stop",
    `
#variable_conflict use_column
DECLARE
  result record;
BEGIN
  ${makeChange(table, "stop", "$1")};
  RETURN result.outcome IS NOT DISTINCT FROM 'changed';
END `,
  );

export const retry = (table: TaskTable) =>
  changeFunction(
    table.qualifiedRetry,
    "id bigint",
    "retry",
    `
#variable_conflict use_column
DECLARE
  result record;
BEGIN
  ${makeChange(table, "retry", "$1")};
  IF result.outcome = 'changed' THEN
    RETURN true;
  ELSIF coalesce(result.outcome, 'missing') = 'missing' THEN
    RAISE EXCEPTION 'there is no task %', id USING ERRCODE = 'no_data_found';
  ELSIF result.state = 'PLAN' THEN
    RETURN false;
  END IF;
  RAISE EXCEPTION 'task % cannot be retried: %', id, CASE WHEN result.reason IS NOT NULL THEN result.reason
    WHEN result.state = ANY (ARRAY['TAKE', 'WORK']) THEN 'it is running' ELSE 'its run is just ending' END USING ERRCODE = 'object_not_in_prerequisite_state';
END `,
  );

/**
 * PL/pgSQL that makes a change of the task that waits with the key, or else of the one that runs and has a schedule.
 * Between two statements, the task can be claimed or end. `result` then says so, and the next one is looked for.
 */
const changeWithKey = (table: TaskTable, change: Change, whenRefused: string): string => `
#variable_conflict use_column
<<change>>
DECLARE
  target bigint;
  result record;
BEGIN${refuseKeys(table)}
  FOR n IN 1 .. 3 LOOP
    target := coalesce((${ownKeyHolderQuery(table)}), (SELECT r.id FROM (${latestClaims(table.qualified, `c.id, c.key, c.state${roleColumn(table)}`)}) AS r
      WHERE r.key = $1${ofRole(table, "r")} AND r.state::text = ANY (ARRAY['TAKE', 'WORK']) LIMIT 1));
    IF target IS NULL THEN
      RAISE EXCEPTION 'no task waits or repeats with the key "%"', key USING ERRCODE = 'no_data_found';
    END IF;
    ${makeChange(table, change, "change.target")};
    IF result.outcome = 'changed' THEN
      RETURN true;
    END IF;
    ${whenRefused}
  END LOOP;
  RAISE EXCEPTION 'the task with the key "%" cannot be changed: %', key, coalesce(result.reason, concat('it is ', result.state))
    USING ERRCODE = 'object_not_in_prerequisite_state';
END `;

const exitIfWaiting = "EXIT WHEN result.state = 'PLAN' AND NOT result.claimed;";

const isRunning = "result.state = ANY (ARRAY['TAKE', 'WORK'])";

/** True if it is due now, and false if it is running. */
export const run = (table: TaskTable) =>
  changeFunction(
    table.qualifiedRun,
    "key text",
    "run",
    changeWithKey(
      table,
      "run-now",
      `
    IF ${isRunning} THEN
      RETURN false;
    END IF;
    ${exitIfWaiting}`,
    ),
  );

export const resume = (table: TaskTable) =>
  changeFunction(
    table.qualifiedResume,
    "key text",
    "resume",
    changeWithKey(
      table,
      "resume",
      `
    IF starts_with(result.reason, 'not paused') THEN
      RETURN false;
    END IF;
    ${exitIfWaiting}`,
    ),
  );

/**
 * While the task of the schedule runs, its successor is planned for infinity. It has the key, so that the run plans no
 * other one when it ends (src/manager/sql/insertSuccessors.sql.ts).
 */
export const pause = (table: TaskTable) =>
  changeFunction(
    table.qualifiedPause,
    "key text",
    "pause",
    changeWithKey(
      table,
      "pause",
      `
    IF result.reason = 'already paused' THEN
      RETURN false;
    ELSIF ${isRunning} THEN
      EXECUTE (SELECT ${pausedSuccessor(table)} FROM pg_attribute AS a
        WHERE a.attrelid = ${literal(table.qualified)}::regclass AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attgenerated = '' AND a.attidentity = '' AND a.attname <> ALL (${nameArray([...columnsWith({ inherited: false }), ...notCopied])}))
        INTO target USING target;
      IF target IS NOT NULL THEN
        UPDATE ${table.qualified} AS t SET plan = 'infinity' WHERE t.id = change.target;
        RETURN true;
      END IF;
    END IF;
    ${exitIfWaiting}`,
    ),
  );

/** What the row gets by itself, and the caller need not be allowed to write. */
const notCopied: readonly ColumnName[] = ["shift", "failures"];

/**
 * SQL of the text of the INSERT, from the columns `a` that successors inherit. It plans the run, because the trigger that
 * sees the plan become infinity then sets `due` and `wait`, which the caller need not be allowed to write. Who may not
 * write `remote` cannot plan a remote task, which its hash tells where `remote` is hidden. Columns of users' own that
 * the caller may not write get their defaults, as in task_schedule.
 */
function pausedSuccessor(table: TaskTable): string {
  const { qualified, usersOwner } = table;
  const needed = columnNames.filter(
    (name) => name !== "remote" && !notCopied.includes(name) && (name !== "role" || usersOwner !== null),
  );
  const may = (name: string): string =>
    ["SELECT", "INSERT"].map((each) => `has_column_privilege(${literal(qualified)}, ${name}, '${each}')`).join(" AND ");
  const inherited = `FILTER (WHERE a.attname = ANY (${nameArray(needed)}) OR ${may("a.attname::text")})`;
  const parts = [
    `INSERT INTO ${qualified} (plan`,
    ") SELECT coalesce(t.due, t.plan)",
    ` FROM ${qualified} AS t WHERE t.id = $1 AND t.state::text = ANY (ARRAY['TAKE', 'WORK']) AND ${hasSchedule("t")}`,
    usersOwner === null ? ` AND t.hash = hashtext(t."group"::text)` : " AND t.remote IS NULL",
    ` ON CONFLICT (${keyColumns(table)}) WHERE key IS NOT NULL AND ready IS NOT NULL DO NOTHING RETURNING id`,
  ].map(literal);
  return `concat(${parts[0]}, string_agg(format(', %I', a.attname), '') ${inherited}, ${parts[1]}, string_agg(format(', t.%I', a.attname), '') ${inherited}, ${parts[2]},
        CASE WHEN NOT (${may("'remote'")}) THEN ${parts[3]} END, ${parts[4]})`;
}

/** Lets a task start that was planned for infinity, unless that is the pause of a schedule. */
export const signal = (table: TaskTable) => ({
  ...changeFunction(
    table.qualifiedSignal,
    "key text, value jsonb DEFAULT NULL",
    "signal",
    `
#variable_conflict use_column
BEGIN${refuseKeys(table)}
  UPDATE ${table.qualified} AS t SET plan = statement_timestamp(), args = coalesce($2, t.args)
  WHERE t.key = $1${ofRole(table, "t")} AND t.key IS NOT NULL AND t.ready IS NOT NULL AND t.plan = 'infinity' AND t.wait IS NULL AND NOT ${hasSchedule("t")};
  RETURN FOUND;
END `,
  ),
  signature: `${table.qualifiedSignal}(text, jsonb)`,
});

/**
 * The procedure TABLE_wait waits until a task has ended. It has no settings, because then it could not commit, and it
 * would keep an old snapshot, which hinders vacuum.
 */
export const wait = (table: TaskTable) => ({
  purpose: "waits for tasks",
  comment: "pg-task wait ",
  signature: `${table.qualifiedWait}(bigint, numeric, text, text, text)`,
  create: `CREATE OR REPLACE PROCEDURE ${table.qualifiedWait}(
  id bigint, seconds numeric DEFAULT 60, INOUT state text DEFAULT NULL, INOUT output text DEFAULT NULL, INOUT error text DEFAULT NULL
) LANGUAGE plpgsql AS ${literal(waitBody(table))}`,
});

const waitBody = ({ qualified }: TaskTable): string => `
DECLARE
  stop CONSTANT pg_catalog.timestamptz := pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => seconds::pg_catalog.float8);
  pause pg_catalog.float8 := 0.005;
  remaining pg_catalog.float8;
BEGIN
  LOOP
    SELECT t.state::pg_catalog.text, t.output, t.error INTO state, output, error FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) $1;
    EXIT WHEN NOT FOUND OR state OPERATOR(pg_catalog.<>) ALL (ARRAY['PLAN', 'TAKE', 'WORK']::pg_catalog.text[]);
    remaining := pg_catalog.date_part('epoch', stop OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp());
    EXIT WHEN remaining OPERATOR(pg_catalog.<=) 0::pg_catalog.float8;
    COMMIT;
    PERFORM pg_catalog.pg_sleep(least(pause, remaining));
    pause := least(pause OPERATOR(pg_catalog.*) 1.5::pg_catalog.float8, 1::pg_catalog.float8);
  END LOOP;
END `;
