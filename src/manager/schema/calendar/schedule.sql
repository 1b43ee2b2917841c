-- The functions that users and pg-task call. They set the settings on which the functions in the other files rely. A
-- rule is a cron expression, a recurrence rule of RFC 5545, or a query.

-- A query may begin with comments and parentheses. No cron expression contains an equals sign, except one that begins
-- with a zone, which is refused.
CREATE OR REPLACE FUNCTION :"schema".task_rule_kind(rule text) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
  SELECT CASE WHEN rule ~* '^(\s|\(|--[^\n]*\n|/\*.*?\*/)*(select|with|values|table)\y' THEN 'query'
    WHEN rule ~* '^\s*(begin|rrule|dtstart|rdate|exdate)\y' OR strpos(rule, '=') > 0 AND rule !~* '^\s*(cron_)?tz=' THEN 'recurrence'
    ELSE 'cron' END
$function$;

-- The first time of the rule after `since`. Null if the rule has ended, or if `rule` or `since` is null. Without a
-- zone, the rule is in the zone of its DTSTART, or else in that of the session. A recurrence rule without DTSTART
-- begins at `since`. Raises 22023 if the rule or the zone is invalid, if the rule is a query, or if a cron rule has no
-- further time.
CREATE OR REPLACE FUNCTION :"schema".task_next(rule text, zone text DEFAULT NULL, since timestamptz DEFAULT now())
RETURNS timestamptz LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
DECLARE
  kind text := :"schema".task_rule_kind(rule);
BEGIN
  IF rule IS NULL OR since IS NULL THEN
    RETURN NULL;
  ELSIF kind = 'query' THEN
    RAISE EXCEPTION 'the times of a query are known only when it runs: %', rule USING ERRCODE = '22023';
  END IF;
  IF kind = 'recurrence' THEN
    rule := :"schema".task_rule_plain(rule);
    zone := coalesce(zone, :"schema".task_rrule_zone(rule));
  END IF;
  zone := coalesce(zone, current_setting('TimeZone'));
  PERFORM :"schema".task_zone_check(zone);
  IF kind = 'cron' THEN
    RETURN :"schema".task_cron_next(rule, zone, since);
  END IF;
  PERFORM :"schema".task_rrule_check(rule, zone);
  RETURN :"schema".task_rrule_next(rule, zone, since);
END $function$;

-- The first `count` times of the rule after `since`, each with the wall time in the rule's zone. The note says what a
-- change of the zone's clocks does to the time, and is null if nothing. Raises the same errors as task_next.
CREATE OR REPLACE FUNCTION :"schema".task_times(rule text, zone text DEFAULT NULL, since timestamptz DEFAULT now(), count integer DEFAULT 10)
RETURNS TABLE ("time" timestamptz, wall timestamp, note text) LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
DECLARE
  kind text := :"schema".task_rule_kind(rule);
BEGIN
  IF kind = 'recurrence' THEN
    rule := :"schema".task_rule_plain(rule);
    zone := coalesce(zone, :"schema".task_rrule_zone(rule));
  END IF;
  zone := coalesce(zone, current_setting('TimeZone'));
  IF kind = 'recurrence' THEN
    rule := :"schema".task_rrule_anchored(rule, zone, date_trunc('second', since));
  END IF;
  FOR i IN 1..count LOOP
    "time" := :"schema".task_next(rule, zone, since);
    EXIT WHEN "time" IS NULL;
    wall := "time" AT TIME ZONE zone;
    note := :"schema".task_rule_note(kind, rule, zone, since, "time");
    RETURN NEXT;
    since := "time";
  END LOOP;
END $function$;

-- What a change of the clocks does to `until`, a time of the rule. `since` is the previous one, or the time at which
-- the search for `until` began.
CREATE OR REPLACE FUNCTION :"schema".task_rule_note(kind text, rule text, zone text, since timestamptz, until timestamptz)
RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
DECLARE
  wall timestamp := until AT TIME ZONE zone;
  instants timestamptz[] := :"schema".task_zone_instants(wall, zone, 'every');
  gap record;
BEGIN
  IF cardinality(instants) = 2 THEN
    RETURN format('clocks are set back: %s comes twice, this is the %s', to_char(wall, 'HH24:MI'),
      CASE WHEN until = instants[1] THEN 'first' ELSE 'second' END);
  END IF;
  SELECT * INTO gap FROM :"schema".task_zone_gap(zone, greatest(since, until - interval '2 days'), until);
  IF gap.low IS NULL THEN
    RETURN NULL;
  ELSIF wall = gap.high THEN
    RETURN format('clocks are set forward from %s to %s', to_char(gap.low, 'HH24:MI'), to_char(gap.high, 'HH24:MI'));
  END IF;
  RETURN NULL;
END $function$;

-- The wall times from which and to which the zone's clocks are first set forward between two instants.
CREATE OR REPLACE FUNCTION :"schema".task_zone_gap(zone text, since timestamptz, until timestamptz, OUT low timestamp, OUT high timestamp)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
DECLARE
  early timestamptz;
  late timestamptz := date_trunc('second', since);
  before interval;
BEGIN
  WHILE late < until LOOP
    early := late;
    late := least(early + interval '12 hours', date_trunc('second', until));
    before := :"schema".task_zone_offset(early, zone);
    IF :"schema".task_zone_offset(late, zone) > before THEN
      late := :"schema".task_zone_change(early AT TIME ZONE 'UTC', late AT TIME ZONE 'UTC', zone) AT TIME ZONE 'UTC';
      low := (late AT TIME ZONE 'UTC') + before;
      high := late AT TIME ZONE zone;
      RETURN;
    END IF;
    EXIT WHEN late >= date_trunc('second', until);
  END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION :"schema".task_rule_zone(rule text) RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$ BEGIN
  RETURN CASE WHEN :"schema".task_rule_kind(rule) = 'recurrence' THEN :"schema".task_rrule_zone(:"schema".task_rule_plain(rule)) END;
END $function$;

CREATE OR REPLACE FUNCTION :"schema".task_rule_check(rule text, zone text) RETURNS void LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$ BEGIN
  PERFORM :"schema".task_zone_check(zone);
  IF :"schema".task_rule_kind(rule) = 'recurrence' THEN
    PERFORM :"schema".task_rrule_check(rule, zone);
  ELSE
    PERFORM :"schema".task_cron_next(rule, zone, timestamptz '2000-01-01 00:00:00+00');
  END IF;
END $function$;

-- The first time of the rule at or after the given plan, and the rule to store with it: a recurrence rule without
-- DTSTART gets one, so that INTERVAL and COUNT keep their meaning in later runs. A row planned for infinity is paused
-- and stays so. Raises 22023 if the rule or the zone is invalid, or if the rule has no such time.
CREATE OR REPLACE FUNCTION :"schema".task_first(INOUT rule text, zone text, INOUT plan timestamptz)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
DECLARE
  given text := rule;
  since timestamptz := CASE WHEN isfinite(plan) THEN plan ELSE statement_timestamp() END;
  first timestamptz;
  last timestamptz;
BEGIN
  PERFORM :"schema".task_zone_check(zone);
  IF :"schema".task_rule_kind(rule) = 'cron' THEN
    first := :"schema".task_cron_next(rule, zone, since - interval '1 microsecond');
  ELSE
    PERFORM :"schema".task_rrule_check(rule, zone);
    -- DTSTART has no fraction of a second.
    rule := :"schema".task_rrule_anchored(rule, zone, date_trunc('second', since + interval '999999 microseconds'));
    first := :"schema".task_rrule_next(rule, zone, since - interval '1 microsecond');
    IF first IS NULL THEN
      last := :"schema".task_rrule_last(rule, zone);
      IF last IS NULL THEN
        RAISE EXCEPTION 'rule "%" is over: it has no time since %', given, since USING ERRCODE = '22023';
      END IF;
      RAISE EXCEPTION 'rule "%" is over: its last time was %', given, last USING ERRCODE = '22023';
    END IF;
    rule := :"schema".task_rrule_remaining(rule, zone, first);
  END IF;
  IF plan <> 'infinity' THEN
    plan := first;
  END IF;
END $function$;

-- The first time of the rule after `since`, as the plan of the successor, and the rule to store with it. The plan is
-- null if the rule has ended, or if an argument is null.
CREATE OR REPLACE FUNCTION :"schema".task_successor(INOUT rule text, zone text, since timestamptz, OUT plan timestamptz)
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
BEGIN
  IF :"schema".task_rule_kind(rule) = 'cron' THEN
    plan := :"schema".task_cron_next(rule, zone, since);
  ELSE
    plan := :"schema".task_rrule_next(rule, zone, since);
    IF plan IS NOT NULL THEN
      rule := :"schema".task_rrule_remaining(rule, zone, plan);
    END IF;
  END IF;
END $function$;

-- Null if the times cannot be computed, because the rule is a query, or because the rule or its zone has become
-- invalid.
CREATE OR REPLACE FUNCTION :"schema".task_upcoming(rule text, zone text, since timestamptz, count integer)
RETURNS timestamptz[] LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
BEGIN
  RETURN CASE WHEN :"schema".task_rule_kind(rule) <> 'query'
    THEN ARRAY(SELECT t."time" FROM :"schema".task_times(rule, zone, since, count) AS t) END;
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END $function$;

-- The time of the rule that is nearest to the plan, if the plan is no longer one, because the server has new time zone
-- data. Null also if the rule or its zone has become invalid.
CREATE OR REPLACE FUNCTION :"schema".task_replanned(rule text, zone text, plan timestamptz)
RETURNS timestamptz LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
DECLARE
  later timestamptz;
  earlier timestamptz;
  since timestamptz := plan - interval '3 hours';
BEGIN
  -- Without DTSTART, any plan is a time of the rule.
  IF :"schema".task_rule_kind(rule) = 'recurrence' AND (:"schema".task_rrule_lines(rule, zone)).start IS NULL THEN
    RETURN NULL;
  END IF;
  later := :"schema".task_next(rule, zone, plan - interval '1 microsecond');
  IF later = plan THEN
    RETURN NULL;
  END IF;
  FOR i IN 1..200 LOOP
    since := :"schema".task_next(rule, zone, since);
    EXIT WHEN since IS NULL OR since >= plan;
    earlier := since;
  END LOOP;
  RETURN CASE WHEN plan - earlier <= later - plan OR later IS NULL THEN earlier ELSE later END;
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END $function$;
