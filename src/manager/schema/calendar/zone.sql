-- Conversion between wall times and instants, by the server's own time zone data.

CREATE OR REPLACE FUNCTION :"schema".task_zone_offset(instant timestamptz, zone text) RETURNS interval LANGUAGE sql STABLE AS $function$
  SELECT (instant AT TIME ZONE zone) - (instant AT TIME ZONE 'UTC')
$function$;

-- First second after `low` at which the zone's offset differs from that at `low`, as that at `high` does. Both are
-- whole seconds in UTC, of type timestamp, because the length of a day that is added to a timestamptz depends on the
-- session's time zone, and at most three days apart: no zone has ever changed its offset twice within three days.
CREATE OR REPLACE FUNCTION :"schema".task_zone_change(low timestamp, high timestamp, zone text) RETURNS timestamp LANGUAGE plpgsql STABLE AS $function$
DECLARE
  before interval := :"schema".task_zone_offset(low AT TIME ZONE 'UTC', zone);
  middle timestamp;
BEGIN
  WHILE high - low > interval '1 second' LOOP
    middle := date_trunc('second', low + (high - low) / 2);
    IF :"schema".task_zone_offset(middle AT TIME ZONE 'UTC', zone) = before THEN
      low := middle;
    ELSE
      high := middle;
    END IF;
  END LOOP;
  RETURN high;
END $function$;

-- Instants at which the zone's clocks show the wall time, in ascending order. The mode decides what is returned if
-- there are two, because the clocks are set back over it, or none, because they are set forward over it:
--   every: all instants that exist
--   first: the first of two; none in a gap (RFC 5545, section 3.3.10)
--   fixed: the first of two; in a gap of up to three hours, its end (Vixie cron)
CREATE OR REPLACE FUNCTION :"schema".task_zone_instants(wall timestamp, zone text, mode text) RETURNS timestamptz[] LANGUAGE plpgsql STABLE AS $function$
DECLARE
  utc timestamptz := wall AT TIME ZONE 'UTC';
  -- No offset is larger than 16 hours, and no change of an offset larger than 24.
  before interval := :"schema".task_zone_offset(utc - interval '26 hours', zone);
  after interval := :"schema".task_zone_offset(utc + interval '26 hours', zone);
  early timestamptz := utc - before;
  late timestamptz := utc - after;
  is_early boolean;
  is_late boolean;
BEGIN
  IF before = after THEN
    RETURN ARRAY[early];
  END IF;
  is_early := (early AT TIME ZONE zone) = wall;
  is_late := (late AT TIME ZONE zone) = wall;
  IF is_early AND is_late AND mode = 'every' THEN
    RETURN ARRAY[least(early, late), greatest(early, late)];
  ELSIF is_early AND is_late THEN
    RETURN ARRAY[least(early, late)];
  ELSIF is_early THEN
    RETURN ARRAY[early];
  ELSIF is_late THEN
    RETURN ARRAY[late];
  END IF;
  IF mode <> 'fixed' OR after - before > interval '3 hours' THEN
    RETURN '{}';
  END IF;
  -- With the offset after the gap, the wall time is an instant before the end of the gap. With the offset before the
  -- gap, it is an instant at or after the end.
  wall := date_trunc('second', wall);
  RETURN ARRAY[:"schema".task_zone_change(wall - after, wall - before, zone) AT TIME ZONE 'UTC'];
END $function$;

-- Raises 22023 unless the zone is the name of a time zone. AT TIME ZONE also accepts abbreviations such as PST, which
-- have no daylight saving time, and POSIX strings such as UTC+3, whose sign is the reverse of what most people expect.
-- Reading pg_timezone_names takes a tenth of a second, so it comes last. A name with a slash and without digits is
-- neither.
CREATE OR REPLACE FUNCTION :"schema".task_zone_check(zone text) RETURNS void LANGUAGE plpgsql STABLE STRICT AS $function$
DECLARE
  wanted text COLLATE "C" := zone;
  hours text COLLATE "C";
  sign text COLLATE "C";
BEGIN
  -- The server refuses names that it does not know, without a hint.
  BEGIN
    PERFORM now() AT TIME ZONE wanted;
  EXCEPTION WHEN invalid_parameter_value THEN
    RAISE EXCEPTION '%', SQLERRM USING ERRCODE = '22023', HINT = 'SELECT name FROM pg_timezone_names lists the names';
  END;
  -- AT TIME ZONE reads these four as abbreviations, although SET TIME ZONE takes them as zones with daylight saving.
  IF wanted ~* '^[cemw]et$' THEN
    RAISE EXCEPTION 'time zone "%" would have no daylight saving time', zone
      USING ERRCODE = '22023', HINT = 'write the name of a region such as Europe/Berlin';
  ELSIF wanted ~* '^(utc|gmt|[a-z_]+(/[a-z_-]+)+)$' AND wanted !~* '^right/'
    OR wanted ~* '^etc/gmt(0|[+-]0|[+-][1-9]|[+-]1[0-2]|-1[34])$'
    OR wanted ~* '^([ehm]st|est5edt|cst6cdt|mst7mdt|pst8pdt|gmt[+-]?0|uct|greenwich|universal|zulu)$'
    OR wanted ~* '^(cuba|egypt|eire|gb|gb-eire|hongkong|iceland|iran|israel|jamaica|japan|kwajalein|libya|navajo|nz|nz-chat)$'
    OR wanted ~* '^(poland|portugal|prc|roc|rok|singapore|turkey|w-su)$'
    OR EXISTS (SELECT FROM pg_timezone_names AS n WHERE lower(n.name COLLATE "C") = lower(wanted))
  THEN
    RETURN;
  END IF;
  sign := substring(wanted FROM '[+-]');
  hours := substring(wanted FROM '(?i)^(?:utc|gmt)?[+-]0?([0-9]|1[0-4])(?::?00)?$');
  -- Etc/GMT-3 is three hours ahead of UTC, which is what most people mean by UTC+3 or +3.
  IF hours = '0' THEN
    RAISE EXCEPTION 'time zone "%" is not a name', zone USING ERRCODE = '22023', HINT = 'write UTC';
  ELSIF hours IS NOT NULL AND (sign = '+' OR hours::int <= 12) THEN
    RAISE EXCEPTION 'time zone "%" is not a name', zone
      USING ERRCODE = '22023', HINT = 'write Etc/GMT' || translate(sign, '+-', '-+') || hours;
  END IF;
  RAISE EXCEPTION 'time zone "%" is not a name', zone
    USING ERRCODE = '22023', HINT = 'write the name of a region such as Europe/Berlin, or UTC';
END $function$;
