import { identifier, literal } from "../../../shared/postgres/quoting.js";
import { isOwing, latestClaims, repetitions } from "../schedulesView.sql.js";
import { keyColumns, ofRole, roleColumn } from "../keyIndex.js";
import type { TaskTable } from "../taskTable.js";
import { nameArray, optionColumns, optionVariables, readOptions, refuseKeys, settings } from "./options.sql.js";

const purpose = "jobs";

/** What the arguments say. */
const given = ["key", "input", "rule", "zone", "repeat"] as const;
const scheduleOptions = optionColumns([...given, "parent", "after", "upon"]);

/** An interval as users write it. A cron expression has no units. */
const isInterval = String.raw`schedule ~* '^(\s*\d+(\.\d+)?\s*([smhdwy]|(sec|second|min|minute|hr|hour|day|week|mon|month|year)s?))+\s*$'`;

/** How long the runs of a job are kept if the table keeps rows forever. */
const keptFor = "7 days";

/**
 * The function TABLE_schedule gives the task that waits with the key another definition, or plans one. If the task with
 * the key is running, the one that is planned replaces its successor (src/manager/sql/insertSuccessors.sql.ts).
 *
 * A schedule that stays the same goes on: its plan stays, and so do a zone that is not given, and the DTSTART that was
 * added to a recurrence rule. Every column that is not given gets its default, so that the arguments define the job.
 */
export const schedule = (table: TaskTable) => ({
  purpose,
  comment: "pg-task schedule ",
  signature: `${table.qualifiedSchedule}(text, text, text, text, jsonb)`,
  create: `CREATE OR REPLACE FUNCTION ${table.qualifiedSchedule}(
  key text, schedule text, input text, zone text DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS bigint LANGUAGE plpgsql ${settings} AS ${literal(scheduleBody(table))}`,
});

const existingColumns = (alias: string): string =>
  ["id", "key", "state", "rule", "zone", "repeat", "drift", "plan", "due", "wait"]
    .map((name) => `${alias}.${name}`)
    .join(", ");

function scheduleBody(table: TaskTable): string {
  const { qualified, schema } = table;
  const calendar = identifier(schema);
  const reset = scheduleOptions.filter((name) => name !== "plan" && name !== "role");
  const role = "coalesce(options ->> 'role', current_user)";
  return `
#variable_conflict use_column
DECLARE
  every CONSTANT interval := CASE WHEN ${isInterval} THEN schedule::interval END;
  kind CONSTANT text := CASE WHEN every IS NULL THEN ${calendar}.task_rule_kind(schedule) ELSE 'interval' END;
  rule CONSTANT text := CASE kind WHEN 'query' THEN schedule WHEN 'interval' THEN NULL ELSE ${calendar}.task_rule_plain(schedule) END;
  expression text;
  keep interval;
  first timestamptz;
  existing record;
  new_zone text;
  waits boolean;
  same boolean;
  assignments text;
  result bigint;${optionVariables}
BEGIN${refuseKeys(table)}
  IF num_nulls(key, schedule, input) > 0 THEN
    RAISE EXCEPTION '% expects a key, a schedule and an input', ${literal(table.scheduleFunction)} USING ERRCODE = 'invalid_parameter_value';
  ELSIF every <= interval '0' THEN
    RAISE EXCEPTION 'the interval must be above 0, not "%"', schedule USING ERRCODE = 'invalid_parameter_value';
  ELSIF every IS NOT NULL AND zone IS NOT NULL THEN
    RAISE EXCEPTION 'zone is set for an interval' USING ERRCODE = 'invalid_parameter_value';
  ELSIF jsonb_typeof(options) <> 'object' THEN
    RAISE EXCEPTION 'options must be an object, not %', jsonb_typeof(options) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT pg_get_expr(d.adbin, d.adrelid) INTO expression FROM pg_attribute AS a JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  WHERE a.attrelid = ${literal(qualified)}::regclass AND a.attname = 'keep';
  EXECUTE concat('SELECT ', coalesce(expression, 'NULL')) INTO keep;
  options := jsonb_build_object('group', key, 'delete', false,
    'keep', CASE WHEN keep > interval '0' THEN keep ELSE ${literal(keptFor)} END) || coalesce(options, '{}');
  first := options ->> 'plan';
  options := options - 'plan';${readOptions(table, scheduleOptions)}
  IF first IS NULL AND every IS NOT NULL THEN
    first := statement_timestamp() + every;
  END IF;
  -- Between two statements, the waiting task can be claimed, and another session can plan one.
  FOR n IN 1 .. 10 LOOP
    SELECT ${existingColumns("t")} INTO existing FROM ${qualified} AS t
    WHERE t.key = $1${ofRole(table, "t", role)} AND t.key IS NOT NULL AND t.ready IS NOT NULL FOR NO KEY UPDATE;
    waits := FOUND;
    IF NOT waits THEN
      SELECT t.* INTO existing FROM (${latestClaims(qualified, existingColumns("c") + roleColumn(table))}) AS t
      WHERE t.key = $1${ofRole(table, "t", role)} AND t.state::text = ANY (ARRAY['TAKE', 'WORK']) LIMIT 1;
    END IF;
    new_zone := CASE WHEN kind = ANY (ARRAY['cron', 'recurrence']) THEN coalesce(zone, ${calendar}.task_rule_zone(rule), existing.zone) ELSE zone END;
    IF every IS NOT NULL THEN
      same := existing.rule IS NULL AND existing.repeat = every;
    ELSE
      same := existing.zone IS NOT DISTINCT FROM new_zone AND (existing.rule = rule OR kind = 'recurrence' AND rule !~* '(^|\\n)DTSTART'
        AND substr(existing.rule, strpos(existing.rule, E'\\n') + 1) = ANY (ARRAY[concat('RRULE:', btrim(rule, E' \\t\\r\\n')), ${calendar}.task_rrule_unfold(rule)]));
    END IF;
    IF waits THEN
      SELECT string_agg(format(CASE WHEN options ->> a.name IS NULL THEN '%1$I = DEFAULT' ELSE '%1$I = o.%1$I' END, a.name), ', ')
      INTO assignments FROM (SELECT unnest(${nameArray(reset)}) UNION SELECT jsonb_object_keys(options)) AS a(name)
      WHERE a.name <> 'remote' OR options ? 'remote' OR has_column_privilege(${literal(qualified)}, 'remote', 'UPDATE');
      IF existing.plan = 'infinity' AND existing.rule IS NULL AND existing.repeat = interval '0' AND existing.wait IS NULL THEN
        -- It waits for a signal, and is no paused schedule.
        first := coalesce(first, statement_timestamp());
      ELSIF same OR existing.plan = 'infinity' THEN
        first := NULL;
      END IF;
      IF first IS NOT NULL THEN
        assignments := concat(assignments, ', plan = $7');
      END IF;
      EXECUTE concat(${literal(`UPDATE ${qualified} AS t SET input = $3, rule = $4, zone = $5, repeat = $6, `)}, assignments,
        ' FROM jsonb_to_record($2) AS o(', types, ') WHERE t.id = $1')
        USING existing.id, options, input, CASE WHEN same THEN existing.rule ELSE rule END, new_zone, coalesce(every, '0'), first;
      RETURN existing.id;
    END IF;
    IF same AND every IS NOT NULL THEN
      SELECT coalesce((${repetitions("statement_timestamp()", 1)})[1], first) INTO first
      FROM (SELECT existing.repeat, existing.drift, coalesce(existing.due, existing.plan) AS base) AS s;
    END IF;
    EXECUTE concat(${literal(`INSERT INTO ${qualified} (key, input, rule, zone, repeat`)}, names, CASE WHEN first IS NOT NULL THEN ', plan' END,
      ') SELECT $1, $3, $4, $5, $6', names, CASE WHEN first IS NOT NULL THEN ', $7' END, ' FROM jsonb_to_record($2) AS o(', types,
      ') ON CONFLICT (${keyColumns(table)}) WHERE key IS NOT NULL AND ready IS NOT NULL DO NOTHING RETURNING id')
      INTO result USING $1, options, input, CASE WHEN same THEN existing.rule ELSE rule END, new_zone, coalesce(every, '0'), first;
    IF result IS NOT NULL THEN
      RETURN result;
    END IF;
  END LOOP;
  RAISE EXCEPTION 'another task waits with the key "%"', key USING ERRCODE = 'object_not_in_prerequisite_state';
END `;
}

/**
 * The function TABLE_unschedule ends the schedule of a key: the waiting task becomes STOP, and a run that is going on
 * is the last one. Also ends a schedule whose next run could not be planned yet.
 */
export const unschedule = (table: TaskTable) => ({
  purpose,
  comment: "pg-task unschedule ",
  signature: `${table.qualifiedUnschedule}(text)`,
  create: `CREATE OR REPLACE FUNCTION ${table.qualifiedUnschedule}(key text)
RETURNS boolean LANGUAGE plpgsql ${settings} AS ${literal(unscheduleBody(table))}`,
});

function unscheduleBody(table: TaskTable): string {
  const { qualified, qualifiedOwed } = table;
  const running = "state::text = ANY (ARRAY['TAKE', 'WORK'])";
  return `
#variable_conflict use_variable
DECLARE
  found_ids bigint[];
  ended boolean;
BEGIN${refuseKeys(table)}
  -- Between two statements, the waiting task can be claimed, and the successor of a running one can be planned.
  FOR n IN 1 .. 3 LOOP
    found_ids := ARRAY(SELECT r.id FROM (${latestClaims(qualified, `c.id, c.key, c.state${roleColumn(table)}`)}) AS r WHERE r.key = $1${ofRole(table, "r")} AND r.${running});
    UPDATE ${qualified} AS t SET rule = NULL, zone = NULL, repeat = '0' WHERE t.${running} AND t.id = ANY (found_ids) AND t.wait IS NULL;
    ended := FOUND;
    -- Its query computes its time. Without a rule, it would run.
    UPDATE ${qualified} AS t SET state = 'STOP' WHERE t.${running} AND t.id = ANY (found_ids) AND t.wait < 0;
    ended := ended OR FOUND;
    UPDATE ${qualified} AS t SET state = 'STOP' WHERE t.key = $1${ofRole(table, "t")} AND t.key IS NOT NULL AND t.ready IS NOT NULL;
    ended := ended OR FOUND;
    UPDATE ${qualified} AS t SET state = 'STOP' WHERE t.id = ANY (ARRAY(SELECT o.task FROM ${qualifiedOwed} AS o)) AND t.key = $1${ofRole(table, "t")} AND ${isOwing("t")};
    IF ended OR FOUND THEN
      RETURN true;
    END IF;
  END LOOP;
  RETURN false;
END `;
}
