-- Rules of RFC 5545: the RRULE value alone, or the lines DTSTART, RRULE, RDATE and EXDATE. task_rule_plain takes these
-- lines from a whole VEVENT or VCALENDAR.
--
-- A rule is parsed once per call, into a record that the other functions take as `parts` (see task_rrule_parse). Rules
-- that are DAILY or slower are evaluated in wall times, and only the result is converted to an instant. Rules that are
-- HOURLY or faster are evaluated in elapsed time, and their BY parts filter by what the clocks show.

CREATE OR REPLACE FUNCTION :"schema".task_rrule_fail(rule text, part text, reason text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $function$
BEGIN
  RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('rule "%s": %s: %s', rule, part, reason);
END $function$;

-- Without folds (RFC 5545, section 3.1), and with LF between lines.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_unfold(rule text) RETURNS text LANGUAGE sql IMMUTABLE AS $function$
  SELECT btrim(replace(replace(
    replace(replace(rule, E'\r\n', E'\n'), E'\r', E'\n'), E'\n ', ''), E'\n\t', ''), E' \t\n')
$function$;

-- First day of the week. Weekdays are numbered from 1 (Monday) to 7; 2001-01-01 was a Monday.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_week(day date, week_start integer) RETURNS date
LANGUAGE sql IMMUTABLE AS $function$
  SELECT day - ((day - date '2001-01-01' + 1 - week_start) % 7 + 7) % 7
$function$;

-- First of the ascending numbers that is greater than the value, or null.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_above(numbers integer[], value integer) RETURNS integer
LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  number integer;
BEGIN
  FOREACH number IN ARRAY numbers LOOP
    IF number > value THEN
      RETURN number;
    END IF;
  END LOOP;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION :"schema".task_rrule_number(rule text, part text, value text, low integer, high integer)
RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $function$
BEGIN
  IF value !~ '^[+-]?[0-9]+$' THEN
    PERFORM :"schema".task_rrule_fail(rule, part, format('''%s'' is not a number', value));
  ELSIF length(value) > 10 OR value::bigint > high THEN
    PERFORM :"schema".task_rrule_fail(rule, part, format('%s is above %s', value, high));
  ELSIF value::bigint < low THEN
    PERFORM :"schema".task_rrule_fail(rule, part, format('%s is below %s', value, low));
  END IF;
  RETURN value::integer;
END $function$;

-- Numbers once each, in ascending order. If `low` is negative, negative ones count from the end, and 0 is invalid.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_numbers(rule text, part text, value text, low integer, high integer)
RETURNS integer[] LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  item text;
  number integer;
  numbers integer[] := '{}';
BEGIN
  FOREACH item IN ARRAY string_to_array(value, ',') LOOP
    IF item !~ '^[+-]?[0-9]+$' THEN
      PERFORM :"schema".task_rrule_fail(rule, part, format('''%s'' is not a number', item));
    END IF;
    number := CASE WHEN length(item) < 10 THEN item::integer END;
    IF number IS NULL OR number < low OR number > high OR (number = 0 AND low < 0) THEN
      PERFORM :"schema".task_rrule_fail(rule, part, format('''%s'' is not within %s', item,
        CASE WHEN low < 0 THEN format('1-%s, or negative', high) ELSE format('%s-%s', low, high) END));
    END IF;
    numbers := numbers || number;
  END LOOP;
  IF cardinality(numbers) > 1 THEN
    numbers := ARRAY(SELECT DISTINCT unnest(numbers) ORDER BY 1);
  END IF;
  RETURN numbers;
END $function$;

-- Parses BYDAY. Weekdays with an ordinal become 10 times the ordinal plus the weekday in `ordinals`: 2MO is 21, and
-- -1FR is -15.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_weekdays(
  rule text, value text, OUT weekdays integer[], OUT ordinals integer[]
) LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  item text;
  weekday integer;
  ordinal integer;
BEGIN
  FOREACH item IN ARRAY string_to_array(value, ',') LOOP
    weekday := array_position('{MO,TU,WE,TH,FR,SA,SU}', right(item, 2));
    ordinal := CASE WHEN length(item) BETWEEN 3 AND 5 AND item ~ '^[+-]?[0-9]+..$' THEN left(item, -2)::integer END;
    IF weekday IS NULL OR abs(ordinal) NOT BETWEEN 1 AND 53 OR (ordinal IS NULL AND length(item) > 2) THEN
      PERFORM :"schema".task_rrule_fail(rule, 'BYDAY', format('''%s'' is not a weekday such as MO, 1MO or -1MO', item));
    END IF;
    IF ordinal IS NULL THEN
      weekdays := weekdays || weekday;
    ELSE
      ordinals := ordinals || 10 * ordinal + sign(ordinal)::integer * weekday;
    END IF;
  END LOOP;
END $function$;

-- Parses a DATE or DATE-TIME value. If the zone's clocks show a local time twice, it is the first instant. If they skip
-- it, the offset before the gap applies (RFC 5545, section 3.3.5). The server has no leap seconds, so second 60 is read
-- as 59.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_stamp(
  rule text, part text, value text, zone text, OUT wall timestamp, OUT instant timestamptz
) LANGUAGE plpgsql STABLE AS $function$
DECLARE
  shape text := translate(value, '0123456789', '9999999999');
  year integer;
  month integer;
  day integer;
  hour integer := 0;
  minute integer := 0;
  second integer := 0;
BEGIN
  IF shape IN ('99999999', '99999999T999999', '99999999T999999Z') THEN
    year := left(value, 4);
    month := substr(value, 5, 2);
    day := substr(value, 7, 2);
    IF length(value) > 8 THEN
      hour := substr(value, 10, 2);
      minute := substr(value, 12, 2);
      second := substr(value, 14, 2);
    END IF;
  END IF;
  IF year >= 1600 AND month BETWEEN 1 AND 12 AND hour <= 23 AND minute <= 59 AND second <= 60
      AND day BETWEEN 1 AND (make_date(year, month, 1) + interval '1 month')::date - make_date(year, month, 1) THEN
    wall := make_timestamp(year, month, day, hour, minute, least(second, 59));
  END IF;
  IF wall IS NULL THEN
    PERFORM :"schema".task_rrule_fail(rule, part, format(
      '''%s'' is not a time such as 20270131T090000, 20270131T090000Z or 20270131', value));
  ELSIF right(value, 1) = 'Z' THEN
    instant := wall AT TIME ZONE 'UTC';
    wall := instant AT TIME ZONE zone;
  ELSE
    instant := coalesce((:"schema".task_zone_instants(wall, zone, 'first'))[1], wall AT TIME ZONE zone);
  END IF;
END $function$;

-- What precedes the colon of a line. A parameter's value may contain colons in quotes.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_head(line text) RETURNS text LANGUAGE sql IMMUTABLE AS $function$
  SELECT CASE WHEN strpos(line, '"') = 0 THEN split_part(line, ':', 1)
    ELSE substring(line FROM '^(?:[^":]|"[^"]*")*') END
$function$;

-- Without those that begin with X- (RFC 5545, section 3.2).
CREATE OR REPLACE FUNCTION :"schema".task_rrule_parameters(head text) RETURNS text[] LANGUAGE sql IMMUTABLE AS $function$
  SELECT (string_to_array(CASE WHEN head ~* ';x-' THEN regexp_replace(head, ';x-(?:[^";]|"[^"]*")*', '', 'gi')
    ELSE head END, ';'))[2:]
$function$;

-- The zone that Outlook and Exchange mean by a name of Windows, or null. From CLDR's table windowsZones.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_windows_zone(name text) RETURNS text LANGUAGE sql IMMUTABLE AS $function$
  SELECT jsonb '{
    "AUS Central Standard Time": "Australia/Darwin",
    "AUS Eastern Standard Time": "Australia/Sydney",
    "Alaskan Standard Time": "America/Anchorage",
    "Arab Standard Time": "Asia/Riyadh",
    "Arabian Standard Time": "Asia/Dubai",
    "Argentina Standard Time": "America/Buenos_Aires",
    "Atlantic Standard Time": "America/Halifax",
    "Canada Central Standard Time": "America/Regina",
    "Cen. Australia Standard Time": "Australia/Adelaide",
    "Central America Standard Time": "America/Guatemala",
    "Central Asia Standard Time": "Asia/Almaty",
    "Central Europe Standard Time": "Europe/Budapest",
    "Central European Standard Time": "Europe/Warsaw",
    "Central Standard Time": "America/Chicago",
    "Central Standard Time (Mexico)": "America/Mexico_City",
    "China Standard Time": "Asia/Shanghai",
    "E. Africa Standard Time": "Africa/Nairobi",
    "E. Australia Standard Time": "Australia/Brisbane",
    "E. Europe Standard Time": "Europe/Chisinau",
    "E. South America Standard Time": "America/Sao_Paulo",
    "Eastern Standard Time": "America/New_York",
    "Egypt Standard Time": "Africa/Cairo",
    "FLE Standard Time": "Europe/Kiev",
    "GMT Standard Time": "Europe/London",
    "GTB Standard Time": "Europe/Bucharest",
    "Greenwich Standard Time": "Atlantic/Reykjavik",
    "Hawaiian Standard Time": "Pacific/Honolulu",
    "India Standard Time": "Asia/Kolkata",
    "Iran Standard Time": "Asia/Tehran",
    "Israel Standard Time": "Asia/Jerusalem",
    "Jordan Standard Time": "Asia/Amman",
    "Korea Standard Time": "Asia/Seoul",
    "Middle East Standard Time": "Asia/Beirut",
    "Morocco Standard Time": "Africa/Casablanca",
    "Mountain Standard Time": "America/Denver",
    "Nepal Standard Time": "Asia/Kathmandu",
    "New Zealand Standard Time": "Pacific/Auckland",
    "Newfoundland Standard Time": "America/St_Johns",
    "Pacific SA Standard Time": "America/Santiago",
    "Pacific Standard Time": "America/Los_Angeles",
    "Pacific Standard Time (Mexico)": "America/Tijuana",
    "Pakistan Standard Time": "Asia/Karachi",
    "Romance Standard Time": "Europe/Paris",
    "Russian Standard Time": "Europe/Moscow",
    "SA Eastern Standard Time": "America/Cayenne",
    "SA Pacific Standard Time": "America/Bogota",
    "SA Western Standard Time": "America/La_Paz",
    "SE Asia Standard Time": "Asia/Bangkok",
    "Singapore Standard Time": "Asia/Singapore",
    "South Africa Standard Time": "Africa/Johannesburg",
    "Taipei Standard Time": "Asia/Taipei",
    "Tasmania Standard Time": "Australia/Hobart",
    "Tokyo Standard Time": "Asia/Tokyo",
    "Turkey Standard Time": "Europe/Istanbul",
    "US Eastern Standard Time": "America/Indianapolis",
    "US Mountain Standard Time": "America/Phoenix",
    "Venezuela Standard Time": "America/Caracas",
    "W. Australia Standard Time": "Australia/Perth",
    "W. Central Africa Standard Time": "Africa/Lagos",
    "W. Europe Standard Time": "Europe/Berlin",
    "West Asia Standard Time": "Asia/Tashkent"
  }' ->> name
$function$;

-- The server's name for a TZID: itself, the zone of the Windows name, what the VTIMEZONE says in X-LIC-LOCATION, or the
-- end of a name such as /freeassociation.sourceforge.net/Europe/Berlin. Any other stays as it is, and is refused later.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_known_zone(tzid text, location text) RETURNS text LANGUAGE plpgsql STABLE AS $function$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY[tzid, :"schema".task_rrule_windows_zone(tzid), location, substring(tzid FROM '^/.*/([^/]+/[^/]+)$')] LOOP
    BEGIN
      PERFORM :"schema".task_zone_check(name);
      IF name IS NOT NULL THEN
        RETURN name;
      END IF;
    EXCEPTION WHEN invalid_parameter_value THEN
      NULL;
    END;
  END LOOP;
  RETURN tzid;
END $function$;

-- What was pasted as a rule does not contain exactly one event. Of it, only the first line is shown.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_component_fail(rule text, reason text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $function$
BEGIN
  RAISE EXCEPTION USING ERRCODE = '22023',
    MESSAGE = format('rule "%s...": %s', "left"(split_part(:"schema".task_rrule_unfold(rule), E'\n', 1), 100), reason),
    HINT = 'paste one event, from BEGIN:VEVENT to END:VEVENT, or its lines DTSTART, RRULE, RDATE and EXDATE';
END $function$;

-- Takes the lines from a whole VEVENT or VCALENDAR. Only the event's own lines count: its alarms and the VTIMEZONE have
-- lines with the same names. Each TZID becomes a name that the server knows, also in rules that are not components.
CREATE OR REPLACE FUNCTION :"schema".task_rule_plain(rule text) RETURNS text LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
DECLARE
  is_component boolean := rule ~* '^\s*begin:';
  path text[] := '{}';
  events integer := 0;
  line text;
  name text;
  value text;
  tzid text;
  locations jsonb := '{}';
  taken text[] := '{}';
BEGIN
  IF NOT is_component AND rule !~* ';tzid="?(/|[^:;"\n]* )' THEN
    RETURN rule;
  END IF;
  FOREACH line IN ARRAY string_to_array(:"schema".task_rrule_unfold(rule), E'\n') LOOP
    name := upper(split_part(:"schema".task_rrule_head(line), ';', 1) COLLATE "C");
    value := btrim(substr(line, length(:"schema".task_rrule_head(line)) + 2));
    IF NOT is_component THEN
      taken := taken || line;
    ELSIF name = 'BEGIN' THEN
      path := path || upper(value COLLATE "C");
      events := events + (path[cardinality(path)] = 'VEVENT')::integer;
    ELSIF name = 'END' THEN
      IF upper(value COLLATE "C") IS DISTINCT FROM path[cardinality(path)] THEN
        PERFORM :"schema".task_rrule_component_fail(rule, format('END:%s does not match BEGIN:%s', value, path[cardinality(path)]));
      END IF;
      path := path[:cardinality(path) - 1];
    ELSIF path IN ('{VEVENT}', '{VCALENDAR,VEVENT}') THEN
      IF name IN ('DTSTART', 'RRULE', 'RDATE', 'EXDATE') THEN
        taken := taken || line;
      ELSIF name = 'EXRULE' THEN
        PERFORM :"schema".task_rrule_component_fail(rule, 'EXRULE is not supported: name the times in EXDATE');
      ELSIF name = 'RECURRENCE-ID' AND events = 1 THEN
        PERFORM :"schema".task_rrule_component_fail(rule, 'the event with RECURRENCE-ID only changes one time of another event');
      END IF;
    ELSIF path IN ('{VTIMEZONE}', '{VCALENDAR,VTIMEZONE}') THEN
      IF name = 'TZID' THEN
        tzid := value;
        locations := jsonb_build_object(tzid, NULL) || locations;
      ELSIF name = 'X-LIC-LOCATION' THEN
        locations := locations || jsonb_build_object(coalesce(tzid, ''), value);
      END IF;
    ELSIF path = '{}' AND line <> '' THEN
      PERFORM :"schema".task_rrule_component_fail(rule, format('%s is outside of the components', name));
    END IF;
  END LOOP;
  IF cardinality(path) > 0 THEN
    PERFORM :"schema".task_rrule_component_fail(rule, format('END:%s is missing', path[cardinality(path)]));
  ELSIF is_component AND events <> 1 THEN
    PERFORM :"schema".task_rrule_component_fail(rule, format('expected one VEVENT, got %s', events));
  ELSIF taken = '{}' THEN
    PERFORM :"schema".task_rrule_component_fail(rule, 'its event has neither DTSTART nor RRULE');
  ELSIF is_component AND array_to_string(taken, E'\n') !~* '(^|\n)R(RULE|DATE)[:;]' THEN
    PERFORM :"schema".task_rrule_component_fail(rule, 'its event has no RRULE or RDATE: to run once, at its DTSTART, set plan instead of rule');
  END IF;
  RETURN (
    SELECT string_agg(split_part(head, ';', 1) || coalesce((
      SELECT string_agg(';' || CASE WHEN parameter ~* '^tzid='
        THEN 'TZID=' || :"schema".task_rrule_known_zone(btrim(substr(parameter, 6), '"'), locations ->> btrim(substr(parameter, 6), '"'))
        ELSE parameter END, '' ORDER BY place)
      FROM unnest(:"schema".task_rrule_parameters(head)) WITH ORDINALITY AS p(parameter, place)), '') || substr(each, length(head) + 1),
      E'\n' ORDER BY position)
    FROM unnest(taken) WITH ORDINALITY AS t(each, position), :"schema".task_rrule_head(each) AS head);
END $function$;

-- The names of UTC mean the same zone.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_same_zone(a text, b text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $function$
  SELECT upper(a COLLATE "C") = upper(b COLLATE "C")
    OR (a ~* '^(etc/)?(utc|uct|universal|zulu)$' AND b ~* '^(etc/)?(utc|uct|universal|zulu)$')
$function$;

-- Refuses a parameter of a line, unless it is a TZID, or a VALUE that agrees with the value. The TZID of DTSTART has to
-- agree with the zone. Other lines may have a zone of their own.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_parameter(rule text, zone text, part text, parameter text, value text)
RETURNS void LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  name text := upper(split_part(parameter, '=', 1) COLLATE "C");
  setting text := upper(btrim(substr(parameter, length(name) + 2), '"') COLLATE "C");
BEGIN
  IF part = 'RRULE' OR NOT (name = 'TZID' OR (name = 'VALUE' AND setting IN ('DATE', 'DATE-TIME'))) THEN
    PERFORM :"schema".task_rrule_fail(rule, part, format('''%s'' is not known', parameter));
  ELSIF name = 'TZID' AND part = 'DTSTART' AND NOT :"schema".task_rrule_same_zone(setting, zone) THEN
    PERFORM :"schema".task_rrule_fail(rule, part, 'zone and TZID differ');
  ELSIF name = 'VALUE' AND (setting = 'DATE') <> (strpos(value, 'T') = 0) THEN
    PERFORM :"schema".task_rrule_fail(rule, part, format('''%s'' is not a %s', value, setting));
  END IF;
END $function$;

-- The values of the lines. `added` and `removed` are those of RDATE and EXDATE, in UTC if they have a zone of their
-- own.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_lines(
  rule text, zone text, OUT recurrence text, OUT start text, OUT added text[], OUT removed text[]
) LANGUAGE plpgsql STABLE AS $function$
DECLARE
  line text;
  head text;
  name text;
  parameter text;
  own_zone text;
BEGIN
  IF strpos(rule, ':') = 0 THEN
    recurrence := upper(btrim(rule, E' \t\r\n') COLLATE "C");
    RETURN;
  END IF;
  FOREACH line IN ARRAY string_to_array(:"schema".task_rrule_unfold(rule), E'\n') LOOP
    CONTINUE WHEN line = '';
    head := :"schema".task_rrule_head(line);
    name := upper(split_part(head, ';', 1) COLLATE "C");
    IF name NOT IN ('DTSTART', 'RRULE', 'RDATE', 'EXDATE') OR head = line THEN
      PERFORM :"schema".task_rrule_fail(rule, name, 'is not a line DTSTART, RRULE, RDATE or EXDATE');
    ELSIF (name = 'DTSTART' AND start IS NOT NULL) OR (name = 'RRULE' AND recurrence IS NOT NULL) THEN
      PERFORM :"schema".task_rrule_fail(rule, name, 'is given twice');
    END IF;
    line := upper(btrim(substr(line, length(head) + 2)) COLLATE "C");
    IF name <> 'RRULE' AND line = '' THEN
      PERFORM :"schema".task_rrule_fail(rule, name, 'has no value');
    END IF;
    own_zone := NULL;
    FOREACH parameter IN ARRAY :"schema".task_rrule_parameters(head) LOOP
      PERFORM :"schema".task_rrule_parameter(rule, zone, name, parameter, line);
      IF name <> 'DTSTART' AND upper(left(parameter, 5) COLLATE "C") = 'TZID=' THEN
        own_zone := btrim(substr(parameter, 6), '"');
      END IF;
    END LOOP;
    IF own_zone IS NOT NULL AND NOT :"schema".task_rrule_same_zone(own_zone, zone) THEN
      PERFORM :"schema".task_zone_check(own_zone);
      -- A day that EXDATE leaves out is one of the rule's zone.
      line := (SELECT string_agg(CASE WHEN name = 'EXDATE' AND length(each) = 8 THEN each
          ELSE to_char((:"schema".task_rrule_stamp(rule, name, each, own_zone)).instant AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISS"Z"') END, ',')
        FROM unnest(string_to_array(line, ',')) AS each);
    END IF;
    CASE name
      WHEN 'DTSTART' THEN start := line;
      WHEN 'RRULE' THEN recurrence := line;
      WHEN 'RDATE' THEN added := added || string_to_array(line, ',');
      WHEN 'EXDATE' THEN removed := removed || string_to_array(line, ',');
    END CASE;
  END LOOP;
END $function$;

-- Refuses combinations of parts that RFC 5545, section 3.3.10, excludes.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_combine(rule text, parts record, named text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  part text;
  reason text;
BEGIN
  IF parts.freq IS NULL THEN
    part := 'FREQ'; reason := 'is missing';
  ELSIF '{COUNT,UNTIL}' <@ named THEN
    part := 'COUNT'; reason := 'UNTIL excludes it';
  ELSIF parts.positions IS NOT NULL
      AND NOT named && '{BYMONTH,BYWEEKNO,BYYEARDAY,BYMONTHDAY,BYDAY,BYHOUR,BYMINUTE,BYSECOND}' THEN
    part := 'BYSETPOS'; reason := 'needs another BY part';
  ELSIF parts.week_numbers IS NOT NULL AND parts.freq <> 'YEARLY' THEN
    part := 'BYWEEKNO'; reason := 'is only for YEARLY';
  ELSIF parts.ordinals IS NOT NULL AND parts.freq NOT IN ('MONTHLY', 'YEARLY') THEN
    part := 'BYDAY'; reason := 'ordinals are only for MONTHLY and YEARLY';
  ELSIF parts.ordinals IS NOT NULL AND parts.week_numbers IS NOT NULL THEN
    part := 'BYDAY'; reason := 'BYWEEKNO excludes ordinals';
  ELSIF parts.year_days IS NOT NULL AND parts.freq IN ('DAILY', 'WEEKLY', 'MONTHLY') THEN
    part := 'BYYEARDAY'; reason := 'is not for ' || parts.freq;
  ELSIF parts.month_days IS NOT NULL AND parts.freq = 'WEEKLY' THEN
    part := 'BYMONTHDAY'; reason := 'is not for WEEKLY';
  ELSE
    RETURN;
  END IF;
  PERFORM :"schema".task_rrule_fail(rule, part, reason);
END $function$;

-- `start` and `start_wall` are DTSTART as an instant and as a wall time, `step` is INTERVAL, and `times` is COUNT. If
-- UNTIL is a day, `until` is the end of that day. A day in RDATE means its midnight. A day in EXDATE leaves out all its
-- times.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_parse(
  rule text, zone text, OUT start timestamptz, OUT start_wall timestamp, OUT freq text, OUT step integer,
  OUT times integer, OUT until timestamptz, OUT week_start integer, OUT months integer[], OUT week_numbers integer[],
  OUT year_days integer[], OUT month_days integer[], OUT weekdays integer[], OUT ordinals integer[],
  OUT hours integer[], OUT minutes integer[], OUT seconds integer[], OUT positions integer[],
  OUT added timestamptz[], OUT removed timestamptz[], OUT removed_days date[]
) LANGUAGE plpgsql STABLE AS $function$
DECLARE
  lines record := :"schema".task_rrule_lines(rule, zone);
  named text[] := '{}';
  item text;
  name text;
  value text;
BEGIN
  step := 1;
  week_start := 1;
  IF lines.recurrence IS NULL AND num_nulls(lines.start, lines.added) = 0 THEN
    -- The times are DTSTART and RDATE, and the recurrence has none.
    lines.recurrence := 'FREQ=DAILY';
    lines.added := lines.start || lines.added;
    times := 0;
  ELSIF lines.recurrence IS NULL AND lines.added IS NOT NULL THEN
    PERFORM :"schema".task_rrule_fail(rule, 'DTSTART', 'is missing: without RRULE, it is the first time');
  ELSIF lines.recurrence IS NULL THEN
    PERFORM :"schema".task_rrule_fail(rule, 'RRULE', concat('is missing', CASE WHEN lines.start IS NOT NULL THEN ': to run once, at this time, set plan instead of rule' END));
  END IF;
  FOREACH item IN ARRAY string_to_array(lines.recurrence, ';') LOOP
    name := split_part(item, '=', 1);
    value := substr(item, length(name) + 2);
    IF name = '' OR value = '' THEN
      PERFORM :"schema".task_rrule_fail(rule, 'RRULE', format('''%s'' is not NAME=VALUE', item));
    ELSIF name = ANY (named) THEN
      PERFORM :"schema".task_rrule_fail(rule, name, 'is given twice');
    END IF;
    named := named || name;
    CASE name
      WHEN 'FREQ' THEN freq := value;
      WHEN 'INTERVAL' THEN step := :"schema".task_rrule_number(rule, name, value, 1, 999999999);
      WHEN 'COUNT' THEN times := :"schema".task_rrule_number(rule, name, value, 1, 999999999);
      WHEN 'UNTIL' THEN
        until := (:"schema".task_rrule_stamp(rule, name, value, zone)).instant;
        IF length(value) = 8 THEN
          until := (:"schema".task_rrule_stamp(rule, name, value || 'T235959', zone)).instant;
        END IF;
      WHEN 'WKST' THEN week_start := array_position('{MO,TU,WE,TH,FR,SA,SU}', value);
      WHEN 'BYMONTH' THEN months := :"schema".task_rrule_numbers(rule, name, value, 1, 12);
      WHEN 'BYWEEKNO' THEN week_numbers := :"schema".task_rrule_numbers(rule, name, value, -53, 53);
      WHEN 'BYYEARDAY' THEN year_days := :"schema".task_rrule_numbers(rule, name, value, -366, 366);
      WHEN 'BYMONTHDAY' THEN month_days := :"schema".task_rrule_numbers(rule, name, value, -31, 31);
      WHEN 'BYDAY' THEN SELECT each.weekdays, each.ordinals INTO weekdays, ordinals
        FROM :"schema".task_rrule_weekdays(rule, value) AS each;
      WHEN 'BYHOUR' THEN hours := :"schema".task_rrule_numbers(rule, name, value, 0, 23);
      WHEN 'BYMINUTE' THEN minutes := :"schema".task_rrule_numbers(rule, name, value, 0, 59);
      WHEN 'BYSECOND' THEN seconds := :"schema".task_rrule_numbers(rule, name, value, 0, 60);
      WHEN 'BYSETPOS' THEN positions := :"schema".task_rrule_numbers(rule, name, value, -366, 366);
      ELSE PERFORM :"schema".task_rrule_fail(rule, name, 'is not known');
    END CASE;
  END LOOP;
  IF freq NOT IN ('YEARLY', 'MONTHLY', 'WEEKLY', 'DAILY', 'HOURLY', 'MINUTELY', 'SECONDLY') THEN
    PERFORM :"schema".task_rrule_fail(rule, 'FREQ', format('''%s'' is not known', freq));
  ELSIF week_start IS NULL THEN
    PERFORM :"schema".task_rrule_fail(rule, 'WKST', 'is not a weekday such as MO');
  END IF;
  -- The server has no leap seconds.
  IF seconds @> '{60}' THEN
    seconds := array_remove(seconds, 60) || CASE WHEN seconds @> '{59}' THEN '{}' ELSE '{59}' END::integer[];
  END IF;
  IF lines.start IS NOT NULL THEN
    SELECT each.wall, each.instant INTO start_wall, start
      FROM :"schema".task_rrule_stamp(rule, 'DTSTART', lines.start, zone) AS each;
  END IF;
  IF lines.added IS NOT NULL THEN
    added := ARRAY(SELECT (:"schema".task_rrule_stamp(rule, 'RDATE', each, zone)).instant
      FROM unnest(lines.added) AS each);
  END IF;
  IF lines.removed IS NOT NULL THEN
    removed := ARRAY(SELECT (:"schema".task_rrule_stamp(rule, 'EXDATE', each, zone)).instant
      FROM unnest(lines.removed) AS each WHERE length(each) <> 8);
    removed_days := ARRAY(SELECT (:"schema".task_rrule_stamp(rule, 'EXDATE', each, zone)).wall::date
      FROM unnest(lines.removed) AS each WHERE length(each) = 8);
  END IF;
  PERFORM :"schema".task_rrule_combine(rule, parts, named)
    FROM (SELECT freq, positions, week_numbers, ordinals, year_days, month_days) AS parts;
END $function$;

-- What the rule leaves open is taken from DTSTART. Without DTSTART, the rule begins at `since`.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_complete(rule text, zone text, since timestamptz) RETURNS record
LANGUAGE plpgsql STABLE AS $function$
DECLARE
  parts record := :"schema".task_rrule_parse(rule, zone);
  free boolean := parts.weekdays IS NULL AND parts.ordinals IS NULL AND parts.month_days IS NULL
    AND parts.year_days IS NULL;
BEGIN
  IF parts.start IS NULL THEN
    parts.start := date_trunc('second', greatest(since, timestamptz '1600-01-01 00:00:00Z'));
    parts.start_wall := parts.start AT TIME ZONE zone;
  END IF;
  IF parts.freq IN ('HOURLY', 'MINUTELY', 'SECONDLY') THEN
    RETURN parts;
  END IF;
  IF free AND (parts.freq = 'WEEKLY' OR parts.week_numbers IS NOT NULL) THEN
    parts.weekdays := ARRAY[extract(isodow FROM parts.start_wall)::integer];
  ELSIF free AND parts.freq <> 'DAILY' THEN
    parts.month_days := ARRAY[extract(day FROM parts.start_wall)::integer];
    IF parts.freq = 'YEARLY' AND parts.months IS NULL THEN
      parts.months := ARRAY[extract(month FROM parts.start_wall)::integer];
    END IF;
  END IF;
  parts.hours := coalesce(parts.hours, ARRAY[extract(hour FROM parts.start_wall)::integer]);
  parts.minutes := coalesce(parts.minutes, ARRAY[extract(minute FROM parts.start_wall)::integer]);
  parts.seconds := coalesce(parts.seconds, ARRAY[extract(second FROM parts.start_wall)::integer]);
  RETURN parts;
END $function$;

-- Days of a month, given by its first day, that the BY parts allow, without regard to INTERVAL.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_month(parts record, month date) RETURNS date[]
LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  length integer := (month + interval '1 month')::date - month;
  weekday integer := month - :"schema".task_rrule_week(month, 1);
  year integer := extract(year FROM month);
  before integer := month - make_date(year, 1, 1);
  year_length integer := make_date(year + 1, 1, 1) - make_date(year, 1, 1);
  -- Ordinals of weekdays count within the month or within the year.
  monthly boolean := parts.freq = 'MONTHLY' OR parts.months IS NOT NULL;
BEGIN
  RETURN ARRAY(
    SELECT month + i FROM generate_series(0, length - 1) AS i
    WHERE (parts.month_days IS NULL OR i + 1 = ANY (parts.month_days) OR i - length = ANY (parts.month_days))
      AND (parts.year_days IS NULL OR before + i + 1 = ANY (parts.year_days)
        OR before + i - year_length = ANY (parts.year_days))
      AND ((parts.weekdays IS NULL AND parts.ordinals IS NULL)
        OR (weekday + i) % 7 + 1 = ANY (parts.weekdays)
        OR CASE WHEN monthly THEN i ELSE before + i END / 7 * 10 + 11 + (weekday + i) % 7 = ANY (parts.ordinals)
        OR -(CASE WHEN monthly THEN length ELSE year_length - before END - 1 - i) / 7 * 10 - 11 - (weekday + i) % 7
          = ANY (parts.ordinals))
      AND (parts.week_numbers IS NULL
        OR :"schema".task_rrule_in_weeks(month + i, parts.week_start, parts.week_numbers)));
END $function$;

-- A week belongs to the year in which its fourth day is, and December 28 is always in the last week of its year.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_in_weeks(day date, week_start integer, numbers integer[])
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  middle date := :"schema".task_rrule_week(day, week_start) + 3;
  year integer := extract(year FROM middle);
  last date := :"schema".task_rrule_week(make_date(year, 12, 28), week_start) + 3;
  number integer := (middle - make_date(year, 1, 1)) / 7 + 1;
BEGIN
  RETURN number = ANY (numbers) OR number - 2 - (last - make_date(year, 1, 1)) / 7 = ANY (numbers);
END $function$;

-- A number from 0 to 55. Years with the same one begin on the same weekday, and they and their neighbours have the same
-- lengths, so a rule without INTERVAL has the same days in all of them.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_year_kind(year integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $function$
  SELECT (make_date(year, 1, 1) - date '1600-01-03' + 7) % 7
    + 7 * (make_date(year, 1, 1) - make_date(year - 1, 1, 1) - 365)
    + 14 * (make_date(year + 1, 1, 1) - make_date(year, 1, 1) - 365)
    + 28 * (make_date(year + 2, 1, 1) - make_date(year + 1, 1, 1) - 365)
$function$;

-- How many months to go forward from `month` to the first one that INTERVAL and BYMONTH allow. For DAILY and WEEKLY,
-- INTERVAL is considered only if it is so long that whole months may be skipped.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_months_ahead(parts record, month date) RETURNS integer
LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  year integer := extract(year FROM month);
  number integer := extract(month FROM month);
  start date := parts.start_wall::date;
  years integer := year - extract(year FROM start)::integer;
  passed integer;
  days bigint;
  next date;
BEGIN
  IF parts.freq = 'YEARLY' AND years % parts.step <> 0 THEN
    RETURN least(parts.step - years % parts.step, 1000) * 12 - number + 1;
  ELSIF parts.freq = 'MONTHLY' THEN
    passed := years * 12 + number - extract(month FROM start)::integer;
    IF passed % parts.step <> 0 THEN
      RETURN least(parts.step - passed % parts.step, 12000);
    END IF;
  ELSIF parts.freq IN ('DAILY', 'WEEKLY') AND parts.step > 4 AND month > start THEN
    days := parts.step;
    IF parts.freq = 'WEEKLY' THEN
      start := :"schema".task_rrule_week(start, parts.week_start);
      days := days * 7;
    END IF;
    -- A week that INTERVAL allows may have begun up to six days before the month.
    passed := (month - start) % days;
    next := month + least(days - passed, 365000)::integer;
    IF passed > 6 AND next >= month + interval '1 month' THEN
      RETURN (extract(year FROM next)::integer - year) * 12 + extract(month FROM next)::integer - number;
    END IF;
  END IF;
  IF number = ANY (parts.months) OR parts.months IS NULL OR (parts.freq = 'YEARLY' AND parts.positions IS NOT NULL) THEN
    RETURN 0;
  END IF;
  IF parts.freq = 'MONTHLY' THEN
    RETURN least(parts.step, 12000);
  ELSIF parts.freq = 'WEEKLY' AND parts.positions IS NOT NULL THEN
    -- The weeks that begin in this month may reach into the next.
    RETURN CASE WHEN number % 12 + 1 = ANY (parts.months) THEN 0 ELSE 1 END;
  END IF;
  RETURN coalesce(:"schema".task_rrule_above(parts.months, number), parts.months[1] + 12) - number;
END $function$;

-- The days that the rule allows in the first month with such days at or after `since`, up to `upto`. The search for
-- later days goes on at `after`. If BYSETPOS selects from sets of several days, the days of whole sets are returned:
-- those of the year, of the month, or of the weeks that begin in the month.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_days(
  parts record, since date, upto date, OUT days date[], OUT after date
) LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  sets boolean := parts.positions IS NOT NULL AND parts.freq IN ('YEARLY', 'MONTHLY', 'WEEKLY');
  span integer := CASE WHEN NOT sets OR parts.freq = 'MONTHLY' THEN 1 WHEN parts.freq = 'WEEKLY' THEN 2 ELSE 12 END;
  month date := make_date(extract(year FROM since)::integer,
    CASE span WHEN 12 THEN 1 ELSE extract(month FROM since)::integer END, 1);
  anchor date := CASE parts.freq WHEN 'DAILY' THEN parts.start_wall::date
    WHEN 'WEEKLY' THEN :"schema".task_rrule_week(parts.start_wall::date, parts.week_start) END;
  ahead integer;
  part date;
  found date[];
  year integer;
  kind integer;
  key integer;
  -- Which months have no days, by kind of year, and how many. They keep the search short for rules that have no times.
  barren boolean[];
  barren_months integer[] := array_fill(0, '{64}');
BEGIN
  days := '{}';
  WHILE month <= upto LOOP
    IF year IS DISTINCT FROM extract(year FROM month)::integer THEN
      year := extract(year FROM month);
      kind := :"schema".task_rrule_year_kind(year);
    END IF;
    IF barren_months[kind + 1] = 12 THEN
      month := make_date(year + 1, 1, 1);
      CONTINUE;
    END IF;
    ahead := :"schema".task_rrule_months_ahead(parts, month);
    IF ahead > 0 THEN
      month := month + make_interval(months => ahead);
      CONTINUE;
    END IF;
    FOR i IN 0..span - 1 LOOP
      part := month + make_interval(months => i);
      key := kind * 12 + extract(month FROM part)::integer;
      IF i > 0 AND span = 2 AND part = make_date(year + 1, 1, 1) THEN
        key := :"schema".task_rrule_year_kind(year + 1) * 12 + 1;
      END IF;
      CONTINUE WHEN barren[key] OR extract(month FROM part)::integer <> ALL (parts.months);
      found := :"schema".task_rrule_month(parts, part);
      IF cardinality(found) = 0 THEN
        barren[key] := true;
        barren_months[(key - 1) / 12 + 1] := barren_months[(key - 1) / 12 + 1] + 1;
      END IF;
      days := days || found;
    END LOOP;
    after := month + make_interval(months => CASE span WHEN 12 THEN 12 ELSE 1 END);
    IF anchor IS NOT NULL AND parts.step > 1 OR span = 2 OR (month < since AND NOT sets) THEN
      days := ARRAY(
        SELECT day FROM unnest(days) AS day
        WHERE (sets OR day >= since)
          AND (span <> 2 OR :"schema".task_rrule_week(day, parts.week_start) BETWEEN month AND after - 1)
          AND (anchor IS NULL OR parts.step = 1 OR CASE parts.freq WHEN 'DAILY' THEN (day - anchor) % parts.step
            ELSE (:"schema".task_rrule_week(day, parts.week_start) - anchor) / 7 % parts.step END = 0));
    END IF;
    EXIT WHEN cardinality(days) > 0;
    month := after;
  END LOOP;
END $function$;

-- In ascending order, after BYSETPOS, and without those that the zone's clocks skip.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_walls(parts record, zone text, days date[]) RETURNS timestamp[]
LANGUAGE plpgsql STABLE AS $function$
BEGIN
  IF parts.positions IS NULL THEN
    RETURN ARRAY(
      SELECT day + make_time(hour, minute, second) AS wall
      FROM unnest(days) AS day, unnest(parts.hours) AS hour, unnest(parts.minutes) AS minute,
        unnest(parts.seconds) AS second
      WHERE ((day + make_time(hour, minute, second)) AT TIME ZONE zone) AT TIME ZONE zone
        = day + make_time(hour, minute, second)
      ORDER BY wall);
  END IF;
  RETURN ARRAY(
    SELECT wall FROM (
      SELECT wall, row_number() OVER (PARTITION BY period ORDER BY wall) AS number,
        row_number() OVER (PARTITION BY period ORDER BY wall DESC) AS reverse
      FROM (
        SELECT day + make_time(hour, minute, second) AS wall,
          CASE parts.freq WHEN 'DAILY' THEN day
            WHEN 'WEEKLY' THEN :"schema".task_rrule_week(day, parts.week_start) END AS period
        FROM unnest(days) AS day, unnest(parts.hours) AS hour, unnest(parts.minutes) AS minute,
          unnest(parts.seconds) AS second
      ) AS every
      WHERE (wall AT TIME ZONE zone) AT TIME ZONE zone = wall
    ) AS numbered
    WHERE number = ANY (parts.positions) OR -reverse = ANY (parts.positions)
    ORDER BY wall);
END $function$;

-- A rule that is DAILY or slower has no times if BYSETPOS is beyond the largest possible set, or if INTERVAL is a
-- multiple of seven days and DTSTART is on a weekday that BYDAY does not allow.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_possible(parts record) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  weekdays integer := coalesce(cardinality(parts.weekdays), CASE WHEN parts.ordinals IS NULL THEN 7 END, 0);
  largest integer := cardinality(parts.hours) * cardinality(parts.minutes) * cardinality(parts.seconds)
    * CASE parts.freq WHEN 'DAILY' THEN 1 WHEN 'WEEKLY' THEN weekdays
      WHEN 'MONTHLY' THEN least(5 * weekdays + coalesce(cardinality(parts.ordinals), 0), cardinality(parts.month_days))
      ELSE least(366, coalesce(cardinality(parts.months), 12) * cardinality(parts.month_days),
        cardinality(parts.year_days)) END;
BEGIN
  RETURN coalesce(largest >= (SELECT min(abs(position)) FROM unnest(parts.positions) AS position), true)
    AND coalesce(parts.freq <> 'DAILY' OR parts.step % 7 <> 0
      OR extract(isodow FROM parts.start_wall)::integer = ANY (parts.weekdays), true);
END $function$;

-- First time after `since` of a rule that is DAILY or slower, without regard to RDATE and EXDATE. `passed` is the
-- number of its times up to `since`, and `latest` the last of them; both are known only if the rule has COUNT.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_calendar_next(
  parts record, zone text, since timestamptz, OUT next timestamptz, OUT passed integer, OUT latest timestamptz
) LANGUAGE plpgsql STABLE AS $function$
DECLARE
  reached timestamp := greatest(since, parts.start - interval '1 microsecond') AT TIME ZONE zone;
  counted boolean := parts.times IS NOT NULL;
  first_day date := CASE WHEN counted THEN parts.start_wall
    ELSE greatest(parts.start_wall, least(reached, timestamp '2700-01-01')) END::date;
  last_day date := least((parts.until AT TIME ZONE zone)::date + 1, date '2600-12-31');
  -- Without sets and counting, one day at a time is enough.
  size integer := CASE WHEN counted OR parts.positions IS NOT NULL THEN 366 ELSE 1 END;
  chunk record;
  i integer;
  wall timestamp;
  instant timestamptz;
  latest_wall timestamp;
BEGIN
  passed := 0;
  IF NOT :"schema".task_rrule_possible(parts) THEN
    RETURN;
  ELSIF parts.positions IS NOT NULL AND parts.freq = 'WEEKLY' THEN
    first_day := :"schema".task_rrule_week(first_day, parts.week_start);
  END IF;
  <<search>>
  LOOP
    chunk := :"schema".task_rrule_days(parts, first_day, last_day);
    EXIT WHEN cardinality(chunk.days) = 0;
    i := 1;
    WHILE i <= cardinality(chunk.days) LOOP
      FOREACH wall IN ARRAY :"schema".task_rrule_walls(parts, zone, chunk.days[i:i + size - 1]) LOOP
        CONTINUE WHEN wall < parts.start_wall OR (wall <= reached AND NOT counted);
        -- Of the times that are only counted, those on the day of DTSTART have to be converted to instants, because
        -- DTSTART may be the second of two equal wall times.
        IF wall > reached OR wall < parts.start_wall + interval '1 day' THEN
          instant := (:"schema".task_zone_instants(wall, zone, 'first'))[1];
          CONTINUE WHEN instant < parts.start;
          EXIT search WHEN instant > parts.until OR passed = parts.times;
          IF instant > since THEN
            next := instant;
            EXIT search;
          END IF;
        END IF;
        EXIT search WHEN passed = parts.times;
        passed := passed + 1;
        latest_wall := wall;
      END LOOP;
      i := i + size;
    END LOOP;
    first_day := chunk.after;
  END LOOP;
  latest := (:"schema".task_zone_instants(latest_wall, zone, 'first'))[1];
END $function$;

-- Whether a rule that is HOURLY or faster can have times at all. While the zone's offset is the same, the weekdays and
-- times of day at which its periods begin repeat after a week or less, so one week is tried for each offset. `origin`
-- is the beginning of the first period, in seconds since 1970, and `pace` is the distance between two, in seconds.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_reachable(
  parts record, zone text, origin bigint, pace bigint, hours_only boolean
) RETURNS boolean LANGUAGE plpgsql STABLE AS $function$
DECLARE
  -- If a part allows every value, its values need not be tried one by one, and the cycle is shorter.
  cycle integer := CASE WHEN parts.weekdays IS NOT NULL THEN 604800 WHEN parts.hours IS NOT NULL THEN 86400
    WHEN parts.minutes IS NOT NULL THEN 3600 ELSE 60 END;
  weekdays integer[] := coalesce(parts.weekdays, '{1}');
  hours integer[] := CASE WHEN cycle <= 3600 THEN '{0}'
    ELSE coalesce(parts.hours, ARRAY(SELECT generate_series(0, 23))) END;
  minutes integer[] := CASE WHEN cycle = 60 OR hours_only THEN '{0}'
    ELSE coalesce(parts.minutes, ARRAY(SELECT generate_series(0, 59))) END;
  seconds integer[] := CASE WHEN parts.freq <> 'SECONDLY' THEN '{0}'
    ELSE coalesce(parts.seconds, ARRAY(SELECT generate_series(0, 59))) END;
  rest bigint := pace;
  swap bigint;
BEGIN
  -- Within the cycle, periods begin at the multiples of the greatest common divisor of the cycle and the pace.
  WHILE rest > 0 LOOP
    swap := cycle % rest;
    cycle := rest;
    rest := swap;
  END LOOP;
  RETURN EXISTS (
    SELECT FROM (
      SELECT DISTINCT
        extract(epoch FROM :"schema".task_zone_offset(parts.start + i * interval '360 hours', zone))::integer
      FROM generate_series(0, 2500) AS i
    ) AS found(shift), unnest(weekdays) AS weekday, unnest(hours) AS hour, unnest(minutes) AS minute,
      unnest(seconds) AS second
    -- 1970-01-05 was a Monday.
    WHERE (origin - 4 * 86400
      + CASE WHEN hours_only THEN ceil(shift / 3600.0)::integer * 3600 ELSE shift END
      - (weekday - 1) * 86400 - hour * 3600 - minute * 60 - second) % cycle = 0);
END $function$;

-- The instant, in seconds since 1970, at which the zone's clocks first show the wall time, in seconds since the
-- beginning of year 1, or a later one.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_first_instant(wall bigint, zone text) RETURNS bigint
LANGUAGE sql STABLE AS $function$
  SELECT extract(epoch FROM coalesce(
    (:"schema".task_zone_instants(timestamp '0001-01-01' + wall * interval '1 second', zone, 'fixed'))[1],
    -- The clocks skip this day.
    (:"schema".task_zone_instants(timestamp '0001-01-02' + wall / 86400 * interval '1 day', zone, 'fixed'))[1]))::bigint
$function$;

-- The earliest wall time at or after `local` that BYHOUR, BYMINUTE and, for SECONDLY, BYSECOND may allow. Both are in
-- seconds since the beginning of year 1.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_clock_ahead(parts record, local bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  hour integer := local / 3600 % 24;
  minute integer := local / 60 % 60;
  second integer := local % 60;
BEGIN
  IF hour <> ALL (parts.hours) THEN
    RETURN local - local % 86400
      + coalesce(:"schema".task_rrule_above(parts.hours, hour), 24) * 3600;
  ELSIF minute <> ALL (parts.minutes) THEN
    RETURN local - local % 3600 + coalesce(:"schema".task_rrule_above(parts.minutes, minute), 60) * 60;
  ELSIF parts.freq = 'SECONDLY' AND second <> ALL (parts.seconds) THEN
    RETURN local - second + coalesce(:"schema".task_rrule_above(parts.seconds, second), 60);
  END IF;
  RETURN local;
END $function$;

-- The times within one period of a rule that is HOURLY or faster, in seconds after its beginning, after BYSETPOS. The
-- period is an hour for HOURLY with BYMINUTE, a second for SECONDLY, and otherwise a minute.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_slots(parts record) RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  minutes integer[] := CASE WHEN parts.freq = 'HOURLY' THEN parts.minutes END;
  seconds integer[] := coalesce(parts.seconds, ARRAY[extract(second FROM parts.start_wall)::integer]);
  slots integer[] := '{0}';
BEGIN
  IF parts.freq <> 'SECONDLY' THEN
    slots := ARRAY(
      SELECT minute * 60 + second FROM unnest(coalesce(minutes, '{0}')) AS minute, unnest(seconds) AS second
      ORDER BY 1);
  END IF;
  IF parts.positions IS NOT NULL THEN
    slots := ARRAY(
      SELECT slots[i] FROM generate_series(1, cardinality(slots)) AS i
      WHERE i = ANY (parts.positions) OR i - cardinality(slots) - 1 = ANY (parts.positions));
  END IF;
  RETURN slots;
END $function$;

-- First time after `since` of a rule that is HOURLY or faster, without regard to RDATE and EXDATE; for `passed` and
-- `latest`, see task_rrule_calendar_next.
--
-- The candidates are points at equal distances (INTERVAL) in elapsed time. The first one is DTSTART's second or the
-- beginning of its minute. If the BY parts exclude a point, the search goes on at the first point that is not before
-- the next wall time that they may allow. HOURLY with BYMINUTE is evaluated like MINUTELY, but INTERVAL counts hours:
-- an hour begins when the clocks show minute 0, and its number is that of the hour in UTC in which it begins. So every
-- time of the rule can replace DTSTART, even where the clocks are set by half an hour.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_elapsed_next(
  parts record, zone text, since timestamptz, OUT next timestamptz, OUT passed integer, OUT latest timestamptz
) LANGUAGE plpgsql STABLE AS $function$
DECLARE
  epoch constant bigint := 62135596800;  -- Seconds from the beginning of year 1 to 1970.
  start bigint := extract(epoch FROM parts.start);
  reached bigint := extract(epoch FROM date_trunc('second', greatest(since, parts.start - interval '1 second')));
  final bigint := extract(epoch FROM least(date_trunc('second', parts.until), timestamptz '2601-01-01 00:00:00Z'));
  slots integer[] := :"schema".task_rrule_slots(parts);
  hours_only boolean := parts.freq = 'HOURLY' AND parts.minutes IS NOT NULL;
  pace bigint := parts.step::bigint * CASE parts.freq WHEN 'HOURLY' THEN 3600 WHEN 'MINUTELY' THEN 60 ELSE 1 END;
  origin bigint := start
    - CASE parts.freq WHEN 'SECONDLY' THEN 0 ELSE extract(second FROM parts.start_wall)::integer END;
  daily boolean := num_nonnulls(parts.months, parts.year_days, parts.month_days, parts.weekdays) > 0;
  hour bigint;
  first_hour bigint;
  point bigint := origin;
  local bigint;
  target bigint;
  instant bigint;
  slot integer;
  day date;
  days date[];
  -- The known days of the rule are those from `known` to the day before `after`.
  known date;
  after date;
  steps integer := 0;
BEGIN
  passed := 0;
  IF parts.times IS NOT NULL AND NOT daily AND cardinality(slots) = 1
      AND num_nonnulls(parts.hours, parts.minutes, parts.seconds) = 0 THEN
    -- Every point is a time, so the last one is known, and those that have passed need not be counted one by one.
    final := least(final, start + (parts.times - 1) * pace);
    passed := CASE WHEN least(reached, final) < start THEN 0 ELSE (least(reached, final) - start) / pace + 1 END;
    latest := CASE WHEN passed > 0 THEN to_timestamp(start + (passed - 1) * pace) END;
    parts.times := NULL;
  END IF;
  IF hours_only THEN
    local := extract(epoch FROM parts.start_wall)::bigint + epoch;
    first_hour := local / 3600 - ceil((local - epoch - start) / 3600.0)::bigint;
    IF parts.step > 1 AND NOT :"schema".task_rrule_reachable(parts, zone, first_hour * 3600, pace, true) THEN
      RETURN;
    END IF;
    pace := 60;
  END IF;
  IF parts.times IS NULL THEN
    point := origin + greatest(0, (reached - 60 - origin) / pace) * pace;
  END IF;
  WHILE point <= final AND cardinality(slots) > 0 LOOP
    steps := steps + 1;
    IF steps = 100 AND NOT hours_only AND NOT :"schema".task_rrule_reachable(parts, zone, origin, pace, false) THEN
      RETURN;
    END IF;
    local := extract(epoch FROM to_timestamp(point) AT TIME ZONE zone)::bigint + epoch;
    target := local;
    IF daily THEN
      day := date '0001-01-01' + (local / 86400)::integer;
      -- If the clocks are set back at midnight, they show the previous day again.
      IF known IS NULL OR day < known OR day >= after THEN
        known := day;
        SELECT found.days, found.after INTO days, after
          FROM :"schema".task_rrule_days(parts, day, date '2600-12-31') AS found;
        EXIT WHEN cardinality(days) = 0;
      END IF;
      IF day <> ALL (days) THEN
        day := coalesce((SELECT min(each) FROM unnest(days) AS each WHERE each > day), after);
        target := (day - date '0001-01-01') * 86400::bigint;
      END IF;
    END IF;
    IF target = local THEN
      target := :"schema".task_rrule_clock_ahead(parts, local);
    END IF;
    IF target = local AND hours_only AND parts.step > 1 THEN
      hour := local / 3600 - ceil((local - epoch - point) / 3600.0)::bigint - first_hour;
      IF hour % parts.step <> 0 THEN
        target := local - local % 3600 + least(parts.step - hour % parts.step, 24) * 3600;
      END IF;
    END IF;
    IF target = local THEN
      FOREACH slot IN ARRAY slots LOOP
        CONTINUE WHEN hours_only AND slot / 60 <> local / 60 % 60;
        instant := point + slot % 60;
        CONTINUE WHEN instant < start OR (instant <= reached AND parts.times IS NULL);
        IF instant > final OR passed = parts.times THEN
          RETURN;
        ELSIF instant > reached THEN
          next := to_timestamp(instant);
          RETURN;
        END IF;
        passed := passed + 1;
        latest := to_timestamp(instant);
      END LOOP;
      point := point + pace;
      CONTINUE;
    END IF;
    -- Go on at the first point at which the clocks may show the target.
    instant := point + target - local;
    IF target - local >= 86400 OR target % 86400 = 0
        OR extract(epoch FROM to_timestamp(instant) AT TIME ZONE zone)::bigint + epoch <> target THEN
      instant := :"schema".task_rrule_first_instant(target, zone);
    END IF;
    -- If the clocks are set back before the target, they show earlier times again, so the search goes on at that
    -- change.
    IF instant - point < 172800 AND instant - point > target - local THEN
      instant := least(instant, extract(epoch FROM :"schema".task_zone_change(
        to_timestamp(point) AT TIME ZONE 'UTC', to_timestamp(instant) AT TIME ZONE 'UTC', zone) AT TIME ZONE 'UTC')::bigint);
    END IF;
    point := point + greatest(1, (instant - point + pace - 1) / pace) * pace;
  END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION :"schema".task_rrule_after(parts record, zone text, since timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $function$
DECLARE
  next timestamptz := since;
  day date;
BEGIN
  LOOP
    IF parts.freq IN ('HOURLY', 'MINUTELY', 'SECONDLY') THEN
      next := (:"schema".task_rrule_elapsed_next(parts, zone, next)).next;
    ELSE
      next := (:"schema".task_rrule_calendar_next(parts, zone, next)).next;
    END IF;
    day := (next AT TIME ZONE zone)::date;
    IF day = ANY (parts.removed_days) THEN
      -- The day can have many times, so the search goes on at its end.
      next := greatest(next,
        (:"schema".task_zone_instants(day + time '24:00', zone, 'fixed'))[1] - interval '1 microsecond');
    ELSIF next <> ALL (parts.removed) IS NOT FALSE THEN
      EXIT;
    END IF;
  END LOOP;
  RETURN least(next, (
    SELECT min(each) FROM unnest(parts.added) AS each
    WHERE each > since AND (each <> ALL (parts.removed)) IS NOT FALSE
      AND ((each AT TIME ZONE zone)::date <> ALL (parts.removed_days)) IS NOT FALSE));
END $function$;

-- Null if the rule has no such time up to the year 2600. A DTSTART that the rule does not allow is not one of its
-- times; RFC 5545 leaves this undefined.
--
-- Making custom plans would take longer than the functions themselves, so generic plans are forced here and below.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_next(rule text, zone text, since timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
  SELECT :"schema".task_rrule_after(:"schema".task_rrule_complete(rule, zone, since), zone,
    greatest(since, timestamptz '1600-01-01 00:00:00Z'))
$function$;

-- The zone of the rule's DTSTART, or null: its TZID, or UTC if it ends with Z (RFC 5545, section 3.3.5).
CREATE OR REPLACE FUNCTION :"schema".task_rrule_zone(rule text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
  line text;
  head text;
  parameter text;
BEGIN
  FOREACH line IN ARRAY string_to_array(:"schema".task_rrule_unfold(rule), E'\n') LOOP
    head := :"schema".task_rrule_head(line);
    CONTINUE WHEN upper(split_part(head, ';', 1) COLLATE "C") <> 'DTSTART';
    FOREACH parameter IN ARRAY :"schema".task_rrule_parameters(head) LOOP
      IF upper(left(parameter, 5) COLLATE "C") = 'TZID=' THEN
        RETURN nullif(btrim(substr(parameter, 6), '"'), '');
      END IF;
    END LOOP;
    IF line ~* 'z\s*$' THEN
      RETURN 'UTC';
    END IF;
  END LOOP;
  RETURN NULL;
END $function$;

-- The wall time, or the time in UTC if the wall time means another instant.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_start_line(instant timestamptz, zone text) RETURNS text
LANGUAGE plpgsql STABLE AS $function$
DECLARE
  second timestamptz := date_trunc('second', instant);
  wall timestamp := second AT TIME ZONE zone;
BEGIN
  IF second = ANY ((:"schema".task_zone_instants(wall, zone, 'first'))[1:1]) THEN
    RETURN format('DTSTART;TZID=%s:%s', zone, to_char(wall, 'YYYYMMDD"T"HH24MISS'));
  END IF;
  RETURN format('DTSTART:%sZ', to_char(second AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISS'));
END $function$;

-- If the rule has no DTSTART, it becomes `start`, rounded up to the second, so that it is not before the task's plan.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_anchored(rule text, zone text, start timestamptz) RETURNS text
LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
DECLARE
  lines record := :"schema".task_rrule_lines(rule, zone);
  line text := :"schema".task_rrule_start_line(start + interval '0.999999 seconds', zone);
BEGIN
  IF lines.start IS NOT NULL THEN
    RETURN rule;
  ELSIF strpos(rule, ':') = 0 THEN
    RETURN line || E'\nRRULE:' || btrim(rule, E' \t\r\n');
  END IF;
  RETURN line || E'\n' || :"schema".task_rrule_unfold(rule);
END $function$;

-- The rule for the times that follow `at`, one of its times. If it has COUNT, DTSTART becomes the last time up to `at`,
-- and COUNT the number of times from there on, so that earlier times are never counted again. COUNT includes the times
-- that EXDATE leaves out, but not those of RDATE.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_remaining(rule text, zone text, at timestamptz) RETURNS text
LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
DECLARE
  parts record := :"schema".task_rrule_complete(rule, zone, at);
  state record;
  rest text;
BEGIN
  IF parts.times IS NULL THEN
    RETURN rule;
  ELSIF parts.freq IN ('HOURLY', 'MINUTELY', 'SECONDLY') THEN
    state := :"schema".task_rrule_elapsed_next(parts, zone, at);
  ELSE
    state := :"schema".task_rrule_calendar_next(parts, zone, at);
  END IF;
  IF state.latest IS NULL THEN
    RETURN rule;
  END IF;
  rest := CASE WHEN strpos(rule, ':') = 0 THEN 'RRULE:' ELSE '' END || :"schema".task_rrule_unfold(rule);
  rest := btrim(regexp_replace(rest, '(^|\n)DTSTART[^\n]*', '', 'i'), E'\n');
  rest := regexp_replace(rest, '((?:^|\n)RRULE[^\n]*[:;]COUNT=)[^;\n]*', '\1' || parts.times - state.passed + 1, 'i');
  RETURN :"schema".task_rrule_start_line(state.latest, zone) || E'\n' || rest;
END $function$;

-- Last time of a rule, or null if it has no times or no end. It is found by bisection, which takes some milliseconds.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_last(rule text, zone text) RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
DECLARE
  parts record := :"schema".task_rrule_complete(rule, zone, statement_timestamp());
  low timestamptz;
  high timestamptz := coalesce(parts.until, '2601-01-01 00:00:00Z');
  middle timestamptz;
  next timestamptz := :"schema".task_rrule_after(parts, zone, timestamptz '1600-01-01 00:00:00Z');
BEGIN
  IF parts.until IS NULL AND parts.times IS NULL THEN
    RETURN NULL;
  END IF;
  high := greatest(high, (SELECT max(each) FROM unnest(parts.added) AS each));
  WHILE next IS NOT NULL LOOP
    -- A time of the rule is at `low`, and none is after `high`.
    low := next;
    LOOP
      middle := low + (high - low) / 2;
      next := :"schema".task_rrule_after(parts, zone, middle);
      EXIT WHEN next IS NOT NULL OR high - low < interval '1 second';
      high := middle;
    END LOOP;
  END LOOP;
  RETURN low;
END $function$;

-- The reason why a rule has no times, if it is a day that none of its months has.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_reason(parts record) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  names constant text[] := '{January,February,March,April,May,June,July,August,September,October,November,December}';
  lengths constant integer[] := '{31,29,31,30,31,30,31,31,30,31,30,31}';
  day integer := (SELECT min(abs(each)) FROM unnest(parts.month_days) AS each);
  month integer := (SELECT each FROM unnest(parts.months) AS each ORDER BY lengths[each] DESC, each LIMIT 1);
BEGIN
  IF day > lengths[month] THEN
    RETURN format('%s has no day %s.', names[month], day);
  END IF;
  RETURN NULL;
END $function$;

-- Without DTSTART, UNTIL is disregarded, because it is not known yet when the rule begins.
CREATE OR REPLACE FUNCTION :"schema".task_rrule_check(rule text, zone text) RETURNS void LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $function$
DECLARE
  parts record := :"schema".task_rrule_complete(rule, zone, statement_timestamp());
  reason text;
BEGIN
  IF strpos(rule, ':') = 0 OR (:"schema".task_rrule_lines(rule, zone)).start IS NULL THEN
    parts.until := NULL;
  ELSIF parts.until < parts.start THEN
    PERFORM :"schema".task_rrule_fail(rule, 'UNTIL', 'is before DTSTART');
  END IF;
  IF :"schema".task_rrule_after(parts, zone, timestamptz '1600-01-01 00:00:00Z') IS NULL THEN
    reason := :"schema".task_rrule_reason(parts);
    IF reason IS NULL THEN
      RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('rule "%s" never comes', rule);
    END IF;
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('rule "%s" never comes', rule), DETAIL = reason;
  END IF;
END $function$;
