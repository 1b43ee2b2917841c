-- Times of cron rules: Vixie cron's five fields, or six with seconds first, with Quartz's L, W and #.
--
-- A field becomes a bit string whose bit n says whether the value n belongs to the field. The bits beyond the plain
-- values stand for days that depend on the month. A working day is a day from Monday to Friday.
--   day      1-31 the day; 32 + n the n-th day before the last; 63 the last working day; 63 + n the one nearest to day n
--   weekday  0-6 each such weekday, from Sunday on; 7 * n + w the n-th weekday w of the month; 42 + w its last

CREATE OR REPLACE FUNCTION :"schema".task_cron_refuse(rule text, part text, problem text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $function$
BEGIN
  RAISE EXCEPTION 'rule "%": %: %', rule, part, problem USING ERRCODE = '22023';
END $function$;

CREATE OR REPLACE FUNCTION :"schema".task_cron_fields(rule text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  line text COLLATE "C" := btrim(rule, E' \t\n\r\f\v');
  fields text[];
  daily text;
BEGIN
  IF line ~* '^(cron_)?tz=' THEN
    RAISE EXCEPTION 'rule "%": the zone is not part of the rule', rule USING ERRCODE = '22023',
      HINT = format('write zone = %L, rule = %L', substring(line FROM '=(\S*)'), btrim(substring(line FROM '\s.*'), E' \t\n\r\f\v'));
  ELSIF octet_length(line) > length(line) AND line ~ '[\u00A0\u2007\u202F]' THEN
    RAISE EXCEPTION 'rule "%": contains a no-break space', rule USING ERRCODE = '22023', HINT = 'write plain spaces between the fields';
  END IF;
  IF line LIKE '@%' THEN
    CASE lower(line)
      WHEN '@yearly', '@annually' THEN RETURN '{0,0,0,1,1,*}';
      WHEN '@monthly' THEN RETURN '{0,0,0,1,*,*}';
      WHEN '@weekly' THEN RETURN '{0,0,0,*,*,0}';
      WHEN '@daily', '@midnight' THEN RETURN '{0,0,0,*,*,*}';
      WHEN '@hourly' THEN RETURN '{0,0,*,*,*,*}';
      WHEN '@reboot' THEN
        RAISE EXCEPTION '@reboot is not a time'
          USING ERRCODE = '22023', HINT = 'insert a task without a rule from whatever starts the server';
      ELSE
        RAISE EXCEPTION 'rule "%": % is not known', rule, line
          USING ERRCODE = '22023', HINT = 'write @yearly, @monthly, @weekly, @daily, @hourly, or fields such as 30 9 * * MON-FRI';
    END CASE;
  END IF;
  IF line ~* '^(every\s+)?([0-9]+([.][0-9]+)?\s*(ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|mons?|months?|y|years?)\M[\s,]*)+$'
    OR line ~* '^PT?[0-9]+[A-Z][0-9A-Z.]*$' OR line ~ '^[0-9]+(:[0-9]+){1,2}$' THEN
    -- A time of day looks the same as an interval.
    IF line ~ '^([01]?[0-9]|2[0-3]):[0-5]?[0-9](:[0-5]?[0-9])?$' THEN
      fields := string_to_array(line, ':');
      daily := format('for each day at %s, write %s; otherwise ', line,
        concat_ws(' ', nullif(fields[3]::int, 0), fields[2]::int, fields[1]::int, '* * *'));
    END IF;
    RAISE EXCEPTION 'rule "%": expected a schedule, got an interval', rule
      USING ERRCODE = '22023', HINT = concat(daily, format('set repeat instead of rule: repeat = %L', regexp_replace(line, '^every\s+', '', 'i')));
  END IF;
  fields := CASE WHEN line = '' THEN '{}' ELSE regexp_split_to_array(line, '[ \t\n\r\f\v]+') END;
  IF cardinality(fields) NOT IN (5, 6) THEN
    RAISE EXCEPTION 'rule "%": expected 5 or 6 fields, got %', rule, cardinality(fields)
      USING ERRCODE = '22023', HINT = CASE cardinality(fields)
        WHEN 7 THEN 'leave out the seventh field, which is the year in Quartz'
        ELSE 'write minute, hour, day, month and weekday, such as 30 9 * * MON-FRI' END;
  END IF;
  RETURN CASE cardinality(fields) WHEN 5 THEN '0'::text || fields ELSE fields END;
END $function$;

-- A number, or the place of a name. A number with too many digits becomes 9999, which is too large for any field.
CREATE OR REPLACE FUNCTION :"schema".task_cron_value(token text, names text[]) RETURNS int LANGUAGE sql IMMUTABLE AS $function$
  SELECT CASE
    WHEN token ~ '^0*[0-9]{1,4}$' THEN right(token, 4)::int
    WHEN token ~ '^[0-9]+$' THEN 9999
    ELSE array_position(names, upper(token)) - 1
  END
$function$;

-- Bit of an item that stands for days that depend on the month, such as L or FRI#2, or null.
CREATE OR REPLACE FUNCTION :"schema".task_cron_special(rule text, part text, item text, names text[]) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  weekday text;
  number int;
  ordinal int;
BEGIN
  IF part = 'day' AND item ~* '^(L|[$])$' THEN
    RETURN 32;
  ELSIF part = 'day' AND item ~* '^LW$' THEN
    RETURN 63;
  ELSIF part = 'day' AND item ~* '^L-[0-9]+$' THEN
    number := :"schema".task_cron_value(substr(item, 3), names);
    IF number > 30 THEN
      PERFORM :"schema".task_cron_refuse(rule, part, format('''%s'' is not within L-0 to L-30', item));
    END IF;
    RETURN 32 + number;
  ELSIF part = 'day' AND item ~* '^[0-9]+W$' THEN
    number := :"schema".task_cron_value(left(item, -1), names);
    IF number NOT BETWEEN 1 AND 31 THEN
      PERFORM :"schema".task_cron_refuse(rule, part, format('''%s'' is not within 1W-31W', item));
    END IF;
    RETURN 63 + number;
  END IF;
  IF part <> 'weekday' OR item !~* '^(?:[0-9]+|[A-Z]{3})(?:#[0-9]+|#?L)$' THEN
    RETURN NULL;
  END IF;
  weekday := CASE WHEN item LIKE '%#%' THEN split_part(item, '#', 1) ELSE left(item, -1) END;
  number := :"schema".task_cron_value(weekday, names);
  IF number IS NULL THEN
    PERFORM :"schema".task_cron_refuse(rule, part, format('''%s'' is not understood', item));
  ELSIF number > 7 THEN
    PERFORM :"schema".task_cron_refuse(rule, part, format('''%s'' is not within 0-7', weekday));
  ELSIF item ~* 'L$' THEN
    RETURN 42 + number % 7;
  END IF;
  ordinal := :"schema".task_cron_value(split_part(item, '#', 2), names);
  IF ordinal NOT BETWEEN 1 AND 5 THEN
    PERFORM :"schema".task_cron_refuse(rule, part, format('''%s'' is not within %s#1-%s#5', item, weekday, weekday));
  END IF;
  RETURN 7 * ordinal + number % 7;
END $function$;

-- The bit string of a field. The weekday 7 is Sunday, and ranges of weekdays may extend past Saturday.
CREATE OR REPLACE FUNCTION :"schema".task_cron_set(rule text, part text, field text, low int, high int, size int, names text[]) RETURNS bit varying LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  is_weekday boolean := part = 'weekday';
  highest int := CASE WHEN is_weekday THEN 7 ELSE high END;
  cycle int := CASE WHEN is_weekday THEN 7 ELSE size END;
  members bit varying := repeat('0', size)::bit varying;
  item text;
  range text;
  is_stepped boolean;
  special int;
  first int;
  last int;
  step int;
BEGIN
  IF field = '*' OR field = '?' AND part IN ('day', 'weekday') THEN
    RETURN overlay(members PLACING repeat('1', high - low + 1)::bit varying FROM low + 1);
  END IF;
  FOREACH item IN ARRAY string_to_array(field, ',') LOOP
    -- Only a test, because a regexp_match() that returns parts takes a hundred times as long.
    IF item !~* '^(?:[*]|(?:[0-9]+|[A-Z]{3})(?:-(?:[0-9]+|[A-Z]{3}))?)(?:/[0-9]+)?$' THEN
      special := :"schema".task_cron_special(rule, part, item, names);
      IF special IS NOT NULL THEN
        members := set_bit(members, special, 1);
        CONTINUE;
      ELSIF item = '' THEN
        PERFORM :"schema".task_cron_refuse(rule, part, format('the list ''%s'' has an empty item', field));
      END IF;
      PERFORM :"schema".task_cron_refuse(rule, part, format('''%s'' is not understood', item));
    END IF;
    is_stepped := item LIKE '%/%';
    range := split_part(item, '/', 1);
    IF range = '*' THEN
      first := low;
      last := high;
    ELSE
      first := :"schema".task_cron_value(split_part(range, '-', 1), names);
      last := CASE
        WHEN range LIKE '%-%' THEN :"schema".task_cron_value(split_part(range, '-', 2), names)
        WHEN is_stepped THEN high
        ELSE first
      END;
    END IF;
    step := CASE WHEN is_stepped THEN :"schema".task_cron_value(split_part(item, '/', 2), NULL::text[]) ELSE 1 END;
    IF first IS NULL OR last IS NULL THEN
      PERFORM :"schema".task_cron_refuse(rule, part, format('''%s'' is not understood', item));
    ELSIF first < low OR greatest(first, last) > highest THEN
      PERFORM :"schema".task_cron_refuse(rule, part, format('''%s'' is not within %s-%s', item, low, highest));
    ELSIF step = 0 THEN
      PERFORM :"schema".task_cron_refuse(rule, part, format('''%s'' has a step of 0', item));
    ELSIF last < first AND is_weekday THEN
      last := last + 7;
    ELSIF last < first THEN
      PERFORM :"schema".task_cron_refuse(rule, part, 
        format('''%s'' ends before it begins: write %s-%s,%s-%s', item, first, high, low, last));
    END IF;
    FOR value IN first..last BY step LOOP
      members := set_bit(members, value % cycle, 1);
    END LOOP;
  END LOOP;
  RETURN members;
END $function$;

CREATE OR REPLACE FUNCTION :"schema".task_cron_member(members bit varying, since int) RETURNS int LANGUAGE sql IMMUTABLE AS $function$
  SELECT nullif(position(B'1' IN substring(members FROM since + 1)), 0) + since - 1
$function$;

-- Days of a month that fit the rule; bit 0 is the first day, which is the weekday `first`. `joint` says whether both
-- the day field and the weekday field have to fit.
CREATE OR REPLACE FUNCTION :"schema".task_cron_days(first int, length int, days bit varying, weekdays bit varying, joint boolean) RETURNS bit varying LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  week bit varying := substring(weekdays FROM 1 FOR 7);
  by_day bit varying := substring(days FROM 2 FOR length);
  by_weekday bit varying := substring(week || week || week || week || week || week FROM first + 1 FOR length);
  special int := 32;
  day int;
  weekday int;
BEGIN
  LOOP
    special := :"schema".task_cron_member(days, special);
    EXIT WHEN special IS NULL;
    IF special < 63 THEN
      day := length - 1 - (special - 32);
    ELSE
      day := CASE special WHEN 63 THEN length ELSE special - 63 END - 1;
      weekday := (first + day) % 7;
      -- The nearest working day is in the same month.
      IF weekday = 6 THEN
        day := day + CASE WHEN day = 0 THEN 2 ELSE -1 END;
      ELSIF weekday = 0 THEN
        day := day + CASE WHEN day = length - 1 THEN -2 ELSE 1 END;
      END IF;
      -- A month without day 31 has no working day nearest to it.
      IF special - 63 > length THEN
        day := -1;
      END IF;
    END IF;
    IF day BETWEEN 0 AND length - 1 THEN
      by_day := set_bit(by_day, day, 1);
    END IF;
    special := special + 1;
  END LOOP;
  special := 7;
  LOOP
    special := :"schema".task_cron_member(weekdays, special);
    EXIT WHEN special IS NULL;
    day := (special % 7 - first + 7) % 7;
    day := day + CASE WHEN special < 42 THEN special / 7 - 1 ELSE (length - 1 - day) / 7 END * 7;
    IF day < length THEN
      by_weekday := set_bit(by_weekday, day, 1);
    END IF;
    special := special + 1;
  END LOOP;
  RETURN CASE WHEN joint THEN by_day & by_weekday ELSE by_day | by_weekday END;
END $function$;

CREATE OR REPLACE FUNCTION :"schema".task_cron_time(since time, sets bit varying[]) RETURNS time LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  second int := :"schema".task_cron_member(sets[1], extract(second FROM since)::int);
  from_minute int := extract(minute FROM since);
  minute int := :"schema".task_cron_member(sets[2], from_minute + (second IS NULL)::int);
  from_hour int := extract(hour FROM since);
  hour int := :"schema".task_cron_member(sets[3], from_hour + (minute IS NULL)::int);
BEGIN
  IF hour > from_hour THEN
    minute := :"schema".task_cron_member(sets[2], 0);
  END IF;
  IF hour > from_hour OR minute > from_minute THEN
    second := :"schema".task_cron_member(sets[1], 0);
  END IF;
  RETURN make_time(hour, minute, second);
END $function$;

-- First wall time of the rule at or after `since`, whether or not the clocks of a zone show it, before 2601. Each kind
-- of month, by its length and first weekday, returns within 40 years, so a rule without a time in 41 years has none at
-- all.
CREATE OR REPLACE FUNCTION :"schema".task_cron_wall(since timestamp, sets bit varying[], joint boolean) RETURNS timestamp LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE
  start time := :"schema".task_cron_time(since::time, sets);
  -- If no time is left on the first day, the search begins with the next day.
  today date := since::date + (start IS NULL)::int;
  year int := extract(year FROM today);
  month int := extract(month FROM today);
  from_day int := extract(day FROM today) - 1;
  final int := least(year + 41, 2600);
  month_start date;
  day int;
BEGIN
  WHILE year <= final LOOP
    month := :"schema".task_cron_member(sets[5], month);
    IF month IS NULL OR make_date(year, month, 1) > today THEN
      from_day := 0;
    END IF;
    IF month IS NOT NULL THEN
      month_start := make_date(year, month, 1);
      day := :"schema".task_cron_member(
        :"schema".task_cron_days(extract(dow FROM month_start)::int,
          extract(day FROM month_start + interval '1 month' - interval '1 day')::int, sets[4], sets[6], joint),
        from_day);
      IF day IS NOT NULL THEN
        RETURN month_start + day
          + CASE WHEN month_start + day = since::date THEN start ELSE :"schema".task_cron_time(time '00:00', sets) END;
      END IF;
      month := month + 1;
    ELSE
      month := 1;
      year := year + 1;
    END IF;
  END LOOP;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION :"schema".task_cron_never(rule text, sets bit varying[], joint boolean) RETURNS void LANGUAGE plpgsql STABLE AS $function$
DECLARE
  names text[] := '{January,February,March,April,May,June,July,August,September,October,November,December}';
  lengths int[] := '{31,29,31,30,31,30,31,31,30,31,30,31}';
  months text[];
  days text[];
  is_day boolean;
BEGIN
  IF :"schema".task_cron_wall(timestamp '2000-01-01', sets, joint) IS NOT NULL THEN
    RAISE EXCEPTION 'rule "%" does not come again before the year 2601', rule USING ERRCODE = '22023';
  END IF;
  -- If one of the two day fields were enough, there would be a time, because every weekday occurs. So both have to fit.
  SELECT array_agg(names[month] ORDER BY month), bool_or(:"schema".task_cron_member(possible, 0) IS NOT NULL)
  INTO months, is_day
  FROM generate_series(1, 12) AS month, LATERAL (SELECT :"schema".task_cron_days(
    0, lengths[month], sets[4], repeat('1', 49)::bit varying, true) AS possible) AS d
  WHERE get_bit(sets[5], month) = 1;
  IF is_day THEN
    RAISE EXCEPTION 'rule "%" never comes', rule
      USING ERRCODE = '22023', DETAIL = 'No day of the month fits both the day field and the weekday field.';
  END IF;
  SELECT array_agg(
    CASE WHEN bit < 32 THEN bit::text WHEN bit < 63 THEN 'L-' || (bit - 32) ELSE (bit - 63) || 'W' END ORDER BY bit)
  INTO days FROM generate_series(1, 94) AS bit WHERE get_bit(sets[4], bit) = 1;
  RAISE EXCEPTION 'rule "%" never comes', rule USING ERRCODE = '22023', DETAIL = format('%s no day %s.',
    regexp_replace(array_to_string(months, ', '), ', ([A-Za-z]+)$', ' and \1')
      || CASE cardinality(months) WHEN 1 THEN ' has' ELSE ' have' END,
    regexp_replace(array_to_string(days, ', '), ', ([^ ]+)$', ' or \1'));
END $function$;

-- A rule is fixed if neither its minute nor its hour begins with `*`. As in Vixie cron, if the clocks skip a time of a
-- fixed rule, the time moves to the end of the gap; if they show it twice, only the first instant counts. For other
-- rules, every instant counts at which the clocks show one of their times.
CREATE OR REPLACE FUNCTION :"schema".task_cron_next(rule text, zone text, since timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE STRICT AS $function$
DECLARE
  text_rule text COLLATE "C" := rule;
  fields text[] COLLATE "C" := :"schema".task_cron_fields(text_rule);
  sets bit varying[] := ARRAY[
    :"schema".task_cron_set(text_rule, 'second', fields[1], 0, 59, 60, NULL::text[]),
    :"schema".task_cron_set(text_rule, 'minute', fields[2], 0, 59, 60, NULL::text[]),
    :"schema".task_cron_set(text_rule, 'hour', fields[3], 0, 23, 24, NULL::text[]),
    :"schema".task_cron_set(text_rule, 'day', fields[4], 1, 31, 95, NULL::text[]),
    :"schema".task_cron_set(text_rule, 'month', fields[5], 1, 12, 13, '{NULL,JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}'::text[]),
    :"schema".task_cron_set(text_rule, 'weekday', fields[6], 0, 6, 49, '{SUN,MON,TUE,WED,THU,FRI,SAT}'::text[])];
  -- As in Vixie cron, both day fields have to fit if one of them begins with *. Otherwise one is enough.
  joint boolean := fields[4] ~ '^[*?]' OR fields[6] ~ '^[*?]';
  fixed boolean := fields[2] !~ '^[*]' AND fields[3] !~ '^[*]';
  -- Instants are timestamps in UTC here, so that adding days does not depend on the session's time zone.
  moment timestamp := greatest(date_trunc('second', since AT TIME ZONE 'UTC'), timestamp '0001-01-03');
  ahead interval;
  start timestamp;
  wall timestamp;
  found timestamp;
  near timestamp;
  change timestamp;
  other interval;
BEGIN
  IF moment > timestamp '2601-01-03' THEN
    PERFORM :"schema".task_cron_never(text_rule, sets, joint);
  END IF;
  ahead := :"schema".task_zone_offset(moment AT TIME ZONE 'UTC', zone);
  start := moment + ahead + interval '1 second';
  -- Each pass searches from the wall time `start` on, assuming that the zone's offset stays as it is at `moment`.
  LOOP
    wall := :"schema".task_cron_wall(start, sets, joint);
    IF wall IS NULL THEN
      PERFORM :"schema".task_cron_never(text_rule, sets, joint);
    END IF;
    found := wall - ahead;
    near := least(found, moment + interval '3 days');
    other := :"schema".task_zone_offset(near AT TIME ZONE 'UTC', zone);
    IF other <> ahead THEN
      change := :"schema".task_zone_change(moment, near, zone);
      other := :"schema".task_zone_offset(change AT TIME ZONE 'UTC', zone);
      IF fixed AND wall < change + other AND other - ahead <= interval '3 hours' THEN
        RETURN change AT TIME ZONE 'UTC';
      END IF;
      -- The search goes on with the wall time that the clocks are set to.
      moment := change;
      ahead := other;
      start := change + other;
    ELSIF near < found THEN
      -- The offset may change once or more before this wall time. The rule has no earlier one, so the search goes on
      -- near it.
      moment := found - interval '36 hours';
      ahead := :"schema".task_zone_offset(moment AT TIME ZONE 'UTC', zone);
      start := wall;
    ELSIF NOT fixed THEN
      RETURN found AT TIME ZONE 'UTC';
    ELSE
      -- The clocks may have shown this wall time before they were set back.
      other := :"schema".task_zone_offset((found - interval '26 hours') AT TIME ZONE 'UTC', zone);
      IF other <= ahead OR :"schema".task_zone_offset((found - (other - ahead)) AT TIME ZONE 'UTC', zone) <> other THEN
        RETURN found AT TIME ZONE 'UTC';
      END IF;
      -- They have, so the search goes on when they show new wall times.
      change := :"schema".task_zone_change(found - (other - ahead), found, zone);
      moment := change + (other - ahead);
      start := change + other;
    END IF;
  END LOOP;
END $function$;
