-- Functions and views of pg_cron, which change and show the jobs of a task table (pg-task facade cron). The jobs have
-- the keys `cron 1`, `cron 2` and so on. All statements are repeatable.

CREATE SCHEMA IF NOT EXISTS cron;

COMMENT ON SCHEMA cron IS 'pg-task facade cron';

CREATE TABLE IF NOT EXISTS cron.pg_task_job (
  jobid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  jobname text,
  username name NOT NULL DEFAULT current_user,
  UNIQUE (jobname, username)
);

COMMENT ON TABLE cron.pg_task_job IS 'Ids and names of the jobs in cron.job';

-- As in pg_cron, each role has jobs of its own.
ALTER TABLE cron.pg_task_job ENABLE ROW LEVEL SECURITY;

DO $function$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_policy WHERE polrelid OPERATOR(pg_catalog.=) 'cron.pg_task_job'::pg_catalog.regclass) THEN
    CREATE POLICY own ON cron.pg_task_job USING (username OPERATOR(pg_catalog.=) current_user);
  END IF;
END $function$;

-- What pg_cron reads of a schedule: five fields, each up to the first character that does not belong there.
CREATE OR REPLACE FUNCTION cron.pg_task_rule(schedule text) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $function$
  SELECT coalesce(regexp_replace(substring(schedule FROM '^\s*(@\S+|(?:\S+\s+){4}\S+)'),
    '(^|\s)((?:,?(?:[*]|[[:alnum:]]+(?:-[[:alnum:]]+)?)(?:/[[:alnum:]]+)?)+)\S*', '\1\2', 'g'), schedule)
$function$;

CREATE OR REPLACE FUNCTION cron.pg_task_plan(job_id bigint, schedule text, command text, zone text DEFAULT NULL) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$ BEGIN
  IF schedule ~* 'second' THEN
    PERFORM :"schema".:"scheduleFunction"(concat('cron ', job_id), schedule, command, NULL::text, '{}'::jsonb);
  ELSE
    PERFORM :"schema".:"scheduleFunction"(concat('cron ', job_id), cron.pg_task_rule(schedule), command,
      coalesce(zone, nullif(current_setting('cron.timezone', true), ''), 'GMT'), '{}'::jsonb);
  END IF;
END $function$;

CREATE OR REPLACE FUNCTION cron.schedule(job_name text, schedule text, command text) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
  result bigint;
BEGIN
  IF job_name IS NULL THEN
    RAISE EXCEPTION 'job_name can not be NULL' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO cron.pg_task_job (jobname) VALUES (job_name)
  ON CONFLICT (jobname, username) DO UPDATE SET jobname = excluded.jobname RETURNING jobid INTO result;
  PERFORM cron.pg_task_plan(result, schedule, command);
  RETURN result;
END $function$;

CREATE OR REPLACE FUNCTION cron.schedule(schedule text, command text) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
  result bigint;
BEGIN
  INSERT INTO cron.pg_task_job DEFAULT VALUES RETURNING jobid INTO result;
  PERFORM cron.pg_task_plan(result, schedule, command);
  RETURN result;
END $function$;

-- A task runs in the database of its table, as the user of the table's entry or, with users, as who has scheduled it.
CREATE OR REPLACE FUNCTION cron.pg_task_refuse(database text, username text, owner name) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$ BEGIN
  IF database <> current_database() THEN
    RAISE EXCEPTION 'database "%" is another one: schedule the job there', database USING ERRCODE = 'feature_not_supported';
  ELSIF username <> owner THEN
    RAISE EXCEPTION 'the job cannot belong to role "%"', username USING ERRCODE = 'feature_not_supported',
      HINT = 'Let this role schedule it.';
  END IF;
END $function$;

-- With users, the functions of jobs change those of their caller only. The owner of the table of jobs also sees others.
CREATE OR REPLACE FUNCTION cron.pg_task_refuse_other(job_id bigint, owner name) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$ BEGIN
  IF owner <> current_user AND to_regclass(:'qualifiedRoles') IS NOT NULL THEN
    RAISE EXCEPTION 'job % belongs to role "%"', job_id, owner USING ERRCODE = 'insufficient_privilege',
      HINT = 'Let this role change it.';
  END IF;
END $function$;

CREATE OR REPLACE FUNCTION cron.schedule_in_database(
  job_name text, schedule text, command text, database text, username text DEFAULT NULL, active boolean DEFAULT true
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
  result bigint;
BEGIN
  PERFORM cron.pg_task_refuse(database, username, current_user);
  result := cron.schedule(job_name, schedule, command);
  PERFORM cron.alter_job(result, active => active);
  RETURN result;
END $function$;

CREATE OR REPLACE FUNCTION cron.unschedule(job_id bigint) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
  owner name;
BEGIN
  DELETE FROM cron.pg_task_job WHERE jobid = job_id RETURNING username INTO owner;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'could not find valid entry for job ''%''', job_id USING ERRCODE = 'no_data_found';
  END IF;
  PERFORM cron.pg_task_refuse_other(job_id, owner);
  PERFORM :"schema".:"unscheduleFunction"(concat('cron ', job_id));
  RETURN true;
END $function$;

CREATE OR REPLACE FUNCTION cron.unschedule(job_name text) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
  found_id bigint;
BEGIN
  SELECT jobid INTO found_id FROM cron.pg_task_job WHERE jobname = job_name AND username = current_user;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'could not find valid entry for job ''%''', job_name USING ERRCODE = 'no_data_found';
  END IF;
  RETURN cron.unschedule(found_id);
END $function$;

-- Views read functions, so that they do not keep the table's owner from dropping it. The row that waits comes before the
-- one that runs, which it replaces.
CREATE OR REPLACE FUNCTION cron.pg_task_jobs() RETURNS TABLE (
  jobid bigint, schedule text, command text, nodename text, nodeport integer, database text, username text, active boolean, jobname text, zone text
) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
  SELECT DISTINCT ON (j.jobid) j.jobid, coalesce(t.rule, concat(extract(epoch FROM t.repeat)::bigint, ' seconds')), t.input::text, 'localhost',
    current_setting('port')::integer, current_database()::text, j.username::text, t.state::text <> 'PLAN' OR t.plan <> 'infinity', j.jobname, t.zone
  FROM cron.pg_task_job AS j JOIN :"schema".:"schedulesView" AS s ON s.key = concat('cron ', j.jobid)
  JOIN :"schema".:"table" AS t ON t.id = s.id
  ORDER BY j.jobid, s.state = 'PLAN' DESC
$function$;

CREATE OR REPLACE FUNCTION cron.alter_job(
  job_id bigint, schedule text DEFAULT NULL, command text DEFAULT NULL, database text DEFAULT NULL, username text DEFAULT NULL,
  active boolean DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
  job record;
BEGIN
  SELECT j.* INTO job FROM cron.pg_task_jobs() AS j WHERE j.jobid = job_id;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'Job % does not exist or you don''t own it', job_id USING ERRCODE = 'no_data_found';
  END IF;
  PERFORM cron.pg_task_refuse_other(job_id, job.username);
  PERFORM cron.pg_task_refuse(database, username, job.username);
  IF num_nonnulls(schedule, command) > 0 THEN
    PERFORM cron.pg_task_plan(job_id, coalesce(schedule, job.schedule), coalesce(command, job.command), job.zone);
  END IF;
  IF active THEN
    PERFORM :"schema".:"resumeFunction"(concat('cron ', job_id));
  ELSIF NOT active THEN
    PERFORM :"schema".:"pauseFunction"(concat('cron ', job_id));
  END IF;
END $function$;

CREATE OR REPLACE VIEW cron.job AS
SELECT jobid, schedule, command, nodename, nodeport, database, username, active, jobname FROM cron.pg_task_jobs();

CREATE OR REPLACE FUNCTION cron.pg_task_change_job() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$ BEGIN
  IF TG_OP = 'DELETE' THEN
    PERFORM cron.unschedule(OLD.jobid);
    RETURN OLD;
  ELSIF TG_OP = 'INSERT' THEN
    PERFORM cron.pg_task_refuse(NEW.database, NEW.username, current_user);
    NEW.jobid := CASE WHEN NEW.jobname IS NULL THEN cron.schedule(NEW.schedule, NEW.command)
      ELSE cron.schedule(NEW.jobname, NEW.schedule, NEW.command) END;
    PERFORM cron.alter_job(NEW.jobid, active => coalesce(NEW.active, true));
    RETURN NEW;
  END IF;
  IF NEW.jobid <> OLD.jobid THEN
    RAISE EXCEPTION 'jobid cannot be changed' USING ERRCODE = 'feature_not_supported';
  END IF;
  UPDATE cron.pg_task_job SET jobname = NEW.jobname WHERE jobid = OLD.jobid AND jobname IS DISTINCT FROM NEW.jobname;
  PERFORM cron.alter_job(OLD.jobid, nullif(NEW.schedule, OLD.schedule), nullif(NEW.command, OLD.command), NEW.database, NEW.username, NEW.active);
  RETURN NEW;
END $function$;

DROP TRIGGER IF EXISTS change ON cron.job;
CREATE TRIGGER change INSTEAD OF INSERT OR UPDATE OR DELETE ON cron.job FOR EACH ROW EXECUTE FUNCTION cron.pg_task_change_job();

CREATE OR REPLACE FUNCTION cron.pg_task_runs() RETURNS TABLE (
  jobid bigint, runid bigint, job_pid integer, database text, username text, command text, status text, return_message text,
  start_time timestamptz, end_time timestamptz
) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
  SELECT substr(t.key, 6)::bigint, t.id::bigint, t.pid, current_database()::text, j.username::text, t.input::text,
    CASE t.state::text WHEN 'DONE' THEN 'succeeded' WHEN 'WORK' THEN 'running' WHEN 'TAKE' THEN 'starting' ELSE 'failed' END,
    coalesce(t.error, t.output)::text, t.start::timestamptz, t.stop::timestamptz
  FROM :"schema".:"table" AS t LEFT JOIN cron.pg_task_job AS j ON concat('cron ', j.jobid) = t.key
  WHERE t.key ~ '^cron [0-9]{1,18}$' AND t.start IS NOT NULL
$function$;

CREATE OR REPLACE VIEW cron.job_run_details AS SELECT * FROM cron.pg_task_runs();

CREATE OR REPLACE FUNCTION cron.pg_task_delete_run() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$ BEGIN
  DELETE FROM :"schema".:"table" WHERE id = OLD.runid AND stop IS NOT NULL AND owner IS NULL;
  RETURN OLD;
END $function$;

DROP TRIGGER IF EXISTS change ON cron.job_run_details;
CREATE TRIGGER change INSTEAD OF DELETE ON cron.job_run_details FOR EACH ROW EXECUTE FUNCTION cron.pg_task_delete_run();
