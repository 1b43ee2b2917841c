import { identifier } from "../../../shared/postgres/quoting.js";
import type { TaskTable } from "../taskTable.js";
import { isAnySet, notifyManager, type OptionCheck } from "./optionCheck.js";

/** A longer one would leave no relation between a rule and its runs. */
const maxJitter = "interval '31 days'";

export function scheduleCheck(table: TaskTable, zone: string): OptionCheck {
  const columns = ["rule", "zone", "catchup", "overlap", "jitter"];
  return {
    watched: [...columns, "plan", "repeat", "drift"],
    isUsed: isAnySet(columns),
    wasUsed: "OLD.rule IS NOT NULL OR OLD.due IS NOT NULL",
    variables: [
      "first_time record",
      "rule_changed boolean := true",
      "plan_changed boolean := false",
      "is_computing boolean := false",
      "is_waiting boolean",
      "is_loaded boolean := false",
      "is_tried boolean := false",
      "begins_run boolean := false",
      "jitter_changed boolean := false",
      "shift interval",
    ],
    body: checkBody(table, zone),
  };
}

/** The row begins a run with all its tries and without results. The waiting try of the run before is dropped. */
const beginRun = `
    NEW.attempt := 0;
    NEW.crash := 0;
    ${["take", "start", "stop", "pid", "output", "error", "errors"].map((name) => `NEW.${name} := NULL;`).join(" ")}`;

/** The key, or the first row, decides how much later than its rule the schedule runs. */
const chooseShift = `
  jitter_changed := TG_OP = 'UPDATE' AND NEW.jitter IS DISTINCT FROM OLD.jitter;
  IF NEW.rule IS NULL AND NEW.jitter IS NOT NULL AND NOT jitter_changed AND TG_OP = 'UPDATE' THEN
    -- The schedule ends.
    NEW.jitter := NULL;
    NEW.shift := NULL;
  ELSIF NEW.rule IS NULL AND NEW.jitter IS NOT NULL THEN
    RAISE EXCEPTION 'jitter is set without rule' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'It spreads the times of a rule. The time of a repeat depends on its first plan.';
  ELSIF NEW.jitter NOT BETWEEN interval '1 second' AND ${maxJitter} THEN
    RAISE EXCEPTION 'jitter must be between 1 second and 31 days, not %', NEW.jitter USING ERRCODE = 'invalid_parameter_value';
  ELSIF jitter_changed OR TG_OP = 'INSERT' AND NEW.shift IS NULL THEN
    NEW.shift := make_interval(secs => mod(hashtext(coalesce(NEW.key, NEW.id::text))::bigint & 2147483647,
      floor(date_part('epoch', NEW.jitter))::bigint)::float8);
  END IF;
  shift := coalesce(NEW.shift, interval '0');`;

/** A waiting row keeps its place in the schedule. */
const moveByShift = `
    IF jitter_changed AND NOT rule_changed AND NOT plan_changed AND NEW.wait IS NULL THEN
      IF NEW.due IS NOT NULL THEN
        NEW.due := NEW.due + shift - coalesce(OLD.shift, interval '0');
      ELSIF NEW.state::text = 'PLAN' AND NEW.owner IS NULL THEN
        NEW.plan := NEW.plan + shift - coalesce(OLD.shift, interval '0');
      END IF;
    END IF;`;

/**
 * If a user moves the plan of a waiting row, the schedule goes on from the new plan, which \`due\` records unless it is a
 * time of the rule anyway. A row that is planned for infinity is paused, and \`due\` keeps its place in the schedule.
 *
 * While the row waits for its next try, a new plan is that of this try. But if the row gets another schedule, or the plan
 * is a later time of its rule, the row begins another run, and the try is dropped.
 *
 * Only rows that are loaded from a dump have a \`due\` when they are inserted. They keep their plan.
 *
 * If a user changes the rule or the plan while a session runs the row's query, the answer would be wrong. The state PLAN
 * makes the manager cancel the query and plan the row again.
 */
function checkBody({ schema }: TaskTable, zone: string): string {
  const calendar = identifier(schema);
  const nextAt = `${calendar}.task_next(NEW.rule, NEW.zone, NEW.plan - shift - interval '1 microsecond') + shift`;
  return `
  <<schedule>>
  BEGIN${chooseShift}
  IF TG_OP = 'UPDATE' THEN
    rule_changed := (NEW.rule, NEW.zone) IS DISTINCT FROM (OLD.rule, OLD.zone);
    plan_changed := NEW.plan IS DISTINCT FROM OLD.plan AND NEW.due IS NOT DISTINCT FROM OLD.due;
    is_computing := OLD.wait IS NOT NULL AND OLD.wait < 0 AND NEW.owner IS NOT NULL AND NEW.state::text IN ('TAKE', 'WORK');
    IF is_computing AND (rule_changed OR plan_changed) THEN
      NEW.state := 'PLAN';
    END IF;
    is_tried := coalesce(OLD.attempt > 0, false);
    IF is_tried AND OLD.state::text = 'PLAN' AND NEW.state::text = 'PLAN' AND NEW.owner IS NULL THEN
      IF NEW.rule IS NULL THEN
        begins_run := NEW.repeat > interval '0' AND (rule_changed OR NEW.repeat IS DISTINCT FROM OLD.repeat)
          AND plan_changed AND NEW.plan <> 'infinity';
      ELSE
        begins_run := rule_changed OR plan_changed AND isfinite(NEW.plan) AND NEW.plan > statement_timestamp()
          AND ${calendar}.task_rule_kind(NEW.rule) <> 'query'
          AND ${nextAt} IS NOT DISTINCT FROM NEW.plan;
      END IF;
    END IF;
    -- Neither a retry nor a change of its plan moves the schedule.
    plan_changed := plan_changed AND (NEW.plan = 'infinity' OR NOT is_tried OR begins_run);${moveByShift}
    IF rule_changed OR jitter_changed THEN
      -- The trigger that wakes the manager fires only for an UPDATE OF plan or state.
      ${notifyManager};
    END IF;
  END IF;
  IF NEW.rule IS NULL THEN
    IF NEW.zone IS NOT NULL THEN
      RAISE EXCEPTION 'zone is set without rule' USING ERRCODE = 'invalid_parameter_value',
        HINT = 'The zone is that of the rule: without one, set zone = NULL.';
    ELSIF NEW.catchup AND NEW.drift AND NEW.repeat > interval '0' THEN
      RAISE EXCEPTION 'catchup and drift exclude each other' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF TG_OP = 'UPDATE' AND rule_changed THEN
      NEW.wait := NULL;
      NEW.due := CASE WHEN is_tried AND NOT begins_run THEN OLD.due END;
    ELSIF plan_changed THEN
      NEW.due := CASE WHEN NEW.plan = 'infinity' AND NEW.repeat > interval '0' THEN coalesce(OLD.due, OLD.plan) END;
    END IF;
    EXIT schedule;
  END IF;
  IF NEW.repeat > interval '0' THEN
    RAISE EXCEPTION 'rule and repeat exclude each other' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Set repeat = ''0'' for a rule, or rule = NULL and zone = NULL for an interval.';
  ELSIF pg_typeof(NEW.plan) <> 'timestamptz'::regtype THEN
    RAISE EXCEPTION 'rule needs a column plan of type timestamp with time zone, not %', pg_typeof(NEW.plan)
      USING ERRCODE = 'feature_not_supported';
  END IF;
  is_loaded := TG_OP = 'INSERT' AND NEW.due IS NOT NULL;
  is_waiting := NEW.state::text = 'PLAN' AND (NEW.owner IS NULL OR is_computing);
  IF rule_changed AND is_waiting AND TG_OP = 'UPDATE' AND NOT plan_changed AND NEW.plan <> 'infinity' THEN
    NEW.plan := statement_timestamp();
  END IF;
  IF ${calendar}.task_rule_kind(NEW.rule) = 'query' THEN
    IF NEW.zone IS NOT NULL THEN
      RAISE EXCEPTION 'zone is set for a rule that is a query' USING ERRCODE = 'invalid_parameter_value',
        HINT = 'Use AT TIME ZONE in the query.';
    END IF;
    IF rule_changed AND is_waiting AND NOT is_loaded THEN
      NEW.wait := -1;
      NEW.due := NULL;
    ELSIF plan_changed AND NEW.plan = 'infinity' THEN
      NEW.due := coalesce(OLD.due, OLD.plan);
    ELSIF plan_changed AND NOT (coalesce(OLD.wait < 0, false)
      AND (OLD.plan = 'infinity' OR OLD.state::text NOT IN ('PLAN', 'TAKE', 'WORK'))) THEN
      -- The row runs at the given time. A row that goes on after a pause or an error runs its query first.
      NEW.due := NULL;
      NEW.wait := NULL;
    END IF;
  ELSE
    IF rule_changed THEN
      NEW.rule := ${calendar}.task_rule_plain(NEW.rule);
    END IF;
    NEW.zone := coalesce(NEW.zone, ${calendar}.task_rule_zone(NEW.rule), nullif(current_setting('pg_task.zone', true), ''), ${zone});
    IF rule_changed AND is_waiting AND NOT is_loaded THEN
      IF shift > interval '0' AND isfinite(NEW.plan) AND ${calendar}.task_rule_kind(NEW.rule) = 'recurrence' THEN
        -- Without DTSTART, it begins at the plan, before it is shifted.
        PERFORM ${calendar}.task_rule_check(NEW.rule, NEW.zone);
        NEW.rule := ${calendar}.task_rrule_anchored(NEW.rule, NEW.zone, date_trunc('second', NEW.plan + interval '999999 microseconds'));
      END IF;
      SELECT * INTO first_time FROM ${calendar}.task_first(NEW.rule, NEW.zone, NEW.plan - shift);
      NEW.plan := first_time.plan + shift;
      NEW.rule := first_time.rule;
      NEW.due := NULL;
      NEW.wait := NULL;
    ELSIF rule_changed AND TG_OP = 'UPDATE' THEN
      -- The rule is used when the run has ended, and a recurrence rule begins now.
      NEW.rule := (${calendar}.task_first(NEW.rule, NEW.zone, statement_timestamp())).rule;
      NEW.wait := NULL;
    ELSIF rule_changed THEN
      PERFORM ${calendar}.task_rule_check(NEW.rule, NEW.zone);
    ELSIF plan_changed THEN
      NEW.due := CASE WHEN NEW.plan = 'infinity' THEN coalesce(OLD.due, OLD.plan)
        WHEN isfinite(NEW.plan) AND ${nextAt} IS DISTINCT FROM NEW.plan
          THEN NEW.plan END;
    END IF;
  END IF;
  IF TG_OP = 'UPDATE' AND OLD.state::text = 'PLAN' AND OLD.wait < 0 AND NEW.wait IS NULL THEN
    -- A time that the server has rejected is not needed any longer.
    NEW.error := NULL;
  END IF;
  -- The trigger that maintains ready may have run before this one.
  IF NEW.state::text = 'PLAN' AND NEW.owner IS NULL THEN
    NEW.ready := NEW.plan <= clock_timestamp();
  END IF;
  END schedule;
  IF begins_run THEN${beginRun}
  END IF;`;
}
