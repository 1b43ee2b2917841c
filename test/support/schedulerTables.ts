/** The tables of other schedulers, as their own scripts make them, for servers on which they cannot be installed. */

/** Version 1.4 of pg_cron (pg_cron--1.0.sql to pg_cron--1.3--1.4.sql), without its functions and its worker. */
export const cronTables = `
  CREATE SCHEMA cron;
  CREATE SEQUENCE cron.jobid_seq;
  CREATE TABLE cron.job (
    jobid bigint PRIMARY KEY DEFAULT nextval('cron.jobid_seq'), schedule text NOT NULL, command text NOT NULL,
    nodename text NOT NULL DEFAULT 'localhost', nodeport int NOT NULL DEFAULT inet_server_port(),
    database text NOT NULL DEFAULT current_database(), username text NOT NULL DEFAULT current_user,
    active boolean NOT NULL DEFAULT true, jobname text, UNIQUE (jobname, username)
  );
  GRANT USAGE ON SCHEMA cron TO PUBLIC;
  GRANT SELECT ON cron.job TO PUBLIC;
  ALTER TABLE cron.job ENABLE ROW LEVEL SECURITY;
  CREATE POLICY cron_job_policy ON cron.job USING (username = CURRENT_USER);
  CREATE SEQUENCE cron.runid_seq;
  CREATE TABLE cron.job_run_details (
    jobid bigint, runid bigint PRIMARY KEY DEFAULT nextval('cron.runid_seq'), job_pid integer, database text, username text,
    command text, status text, return_message text, start_time timestamptz, end_time timestamptz
  );
  GRANT SELECT ON cron.job_run_details TO PUBLIC;
  ALTER TABLE cron.job_run_details ENABLE ROW LEVEL SECURITY;
  CREATE POLICY cron_job_run_details_policy ON cron.job_run_details USING (username = CURRENT_USER)`;

/** Version 4.2 of pgAgent (pgagent--4.2.sql), without its functions. */
export const agentTables = `
  CREATE SCHEMA pgagent;
  CREATE TABLE pgagent.pga_job (
    jobid serial PRIMARY KEY, jobjclid int4 NOT NULL DEFAULT 1, jobname text NOT NULL, jobdesc text NOT NULL DEFAULT '',
    jobhostagent text NOT NULL DEFAULT '', jobenabled bool NOT NULL DEFAULT true, jobcreated timestamptz NOT NULL DEFAULT current_timestamp,
    jobchanged timestamptz NOT NULL DEFAULT current_timestamp, jobagentid int4, jobnextrun timestamptz, joblastrun timestamptz
  );
  CREATE TABLE pgagent.pga_jobstep (
    jstid serial PRIMARY KEY, jstjobid int4 NOT NULL REFERENCES pgagent.pga_job ON DELETE CASCADE, jstname text NOT NULL,
    jstdesc text NOT NULL DEFAULT '', jstenabled bool NOT NULL DEFAULT true, jstkind char NOT NULL CHECK (jstkind IN ('b', 's')),
    jstcode text NOT NULL, jstconnstr text NOT NULL DEFAULT '', jstdbname name NOT NULL DEFAULT '',
    jstonerror char NOT NULL CHECK (jstonerror IN ('f', 's', 'i')) DEFAULT 'f', jscnextrun timestamptz
  );
  CREATE TABLE pgagent.pga_schedule (
    jscid serial PRIMARY KEY, jscjobid int4 NOT NULL REFERENCES pgagent.pga_job ON DELETE CASCADE, jscname text NOT NULL,
    jscdesc text NOT NULL DEFAULT '', jscenabled bool NOT NULL DEFAULT true, jscstart timestamptz NOT NULL DEFAULT current_timestamp,
    jscend timestamptz, jscminutes bool[60] NOT NULL DEFAULT array_fill(false, '{60}'), jschours bool[24] NOT NULL DEFAULT array_fill(false, '{24}'),
    jscweekdays bool[7] NOT NULL DEFAULT array_fill(false, '{7}'), jscmonthdays bool[32] NOT NULL DEFAULT array_fill(false, '{32}'),
    jscmonths bool[12] NOT NULL DEFAULT array_fill(false, '{12}')
  );
  CREATE TABLE pgagent.pga_exception (
    jexid serial PRIMARY KEY, jexscid int4 NOT NULL REFERENCES pgagent.pga_schedule ON DELETE CASCADE, jexdate date, jextime time
  );
  CREATE TABLE pgagent.pga_joblog (
    jlgid serial PRIMARY KEY, jlgjobid int4 NOT NULL REFERENCES pgagent.pga_job ON DELETE CASCADE,
    jlgstatus char NOT NULL CHECK (jlgstatus IN ('r', 's', 'f', 'i', 'd')) DEFAULT 'r', jlgstart timestamptz NOT NULL DEFAULT current_timestamp,
    jlgduration interval
  );
  CREATE TABLE pgagent.pga_jobsteplog (
    jslid serial PRIMARY KEY, jsljlgid int4 NOT NULL REFERENCES pgagent.pga_joblog ON DELETE CASCADE,
    jsljstid int4 NOT NULL REFERENCES pgagent.pga_jobstep ON DELETE CASCADE, jslstatus char NOT NULL DEFAULT 'r', jslresult int4,
    jslstart timestamptz NOT NULL DEFAULT current_timestamp, jslduration interval, jsloutput text
  )`;

/** Version 5 of pg_timetable (internal/pgengine/sql/ddl.sql), without its functions. */
export const timetableTables = `
  CREATE SCHEMA timetable;
  CREATE DOMAIN timetable.cron AS text;
  CREATE TABLE timetable.chain (
    chain_id bigserial PRIMARY KEY, chain_name text NOT NULL UNIQUE, run_at timetable.cron, max_instances integer,
    timeout integer DEFAULT 0, live boolean DEFAULT false, self_destruct boolean DEFAULT false,
    exclusive_execution boolean DEFAULT false, client_name text, on_error text
  );
  CREATE TYPE timetable.command_kind AS ENUM ('SQL', 'PROGRAM', 'BUILTIN');
  CREATE TABLE timetable.task (
    task_id bigserial PRIMARY KEY, chain_id bigint REFERENCES timetable.chain ON UPDATE CASCADE ON DELETE CASCADE,
    task_order double precision NOT NULL, task_name text, kind timetable.command_kind NOT NULL DEFAULT 'SQL', command text NOT NULL,
    run_as text, database_connection text, ignore_error boolean NOT NULL DEFAULT false, autonomous boolean NOT NULL DEFAULT false,
    timeout integer DEFAULT 0
  );
  CREATE TABLE timetable.parameter (
    task_id bigint REFERENCES timetable.task ON UPDATE CASCADE ON DELETE CASCADE, order_id integer CHECK (order_id > 0), value jsonb,
    PRIMARY KEY (task_id, order_id)
  );
  CREATE TABLE timetable.execution_log (
    chain_id bigint, task_id bigint, txid bigint NOT NULL, last_run timestamptz DEFAULT now(), finished timestamptz, pid bigint,
    returncode integer, ignore_error boolean, kind timetable.command_kind, command text, output text, client_name text NOT NULL
  )`;

/** pgpro_scheduler, as its documentation describes the table. */
export const pgproTables = `
  CREATE SCHEMA schedule;
  CREATE TABLE schedule.cron (
    id serial PRIMARY KEY, node text, name text, comments text, rule jsonb, next_time_statement text, do_sql text[],
    same_transaction boolean DEFAULT false, onrollback_statement text, active boolean DEFAULT true, broken boolean DEFAULT false,
    executor text, owner text, postpone interval, retry integer DEFAULT 0, max_run_time interval, max_instances integer DEFAULT 1,
    start_date timestamptz, end_date timestamptz, reason text
  );
  CREATE FUNCTION schedule.activate_job(integer) RETURNS boolean LANGUAGE sql AS
    'UPDATE schedule.cron SET active = true WHERE id = $1 RETURNING true';
  CREATE FUNCTION schedule.deactivate_job(integer) RETURNS boolean LANGUAGE sql AS
    'UPDATE schedule.cron SET active = false WHERE id = $1 RETURNING true'`;
