/**
 * Session state that a task may leave: the statements that leave it, a query that looks for it, and the output of the query
 * if nothing was left. The statements and the query are inputs of tasks.
 */
export type Trace = readonly [leave: string, look: string, none: string];

/** Creates the objects that the inputs need. Only `currval` shows whether the session has used the sequence. */
export const tracesSetup = `
  CREATE SEQUENCE numbers;
  CREATE FUNCTION counted() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
      PERFORM currval('numbers');
      RETURN true;
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
      RETURN false;
    END
  $$;
  CREATE FUNCTION attend() RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
      EXECUTE 'LISTEN trace';
    END
  $$;
  CREATE FUNCTION only_read() RETURNS text LANGUAGE sql AS $$
    SELECT set_config('transaction_read_only', 'on', false)
  $$;
  CREATE FUNCTION kind_of_transaction() RETURNS text LANGUAGE sql AS $$
    SELECT current_setting('transaction_read_only') || ' ' || current_setting('transaction_isolation')
  $$`;

/** @param role a role that the session's role may switch to */
export const traces = (role: string): Readonly<Record<string, Trace>> => ({
  "temporary tables": ["CREATE TEMP TABLE trace AS SELECT 1", "SELECT to_regclass('pg_temp.trace') IS NULL", "t"],
  settings: [
    "SET work_mem = '12345kB'; SET DateStyle = 'German'; SET statement_timeout = '1h'",
    "SELECT current_setting('work_mem') <> '12345kB' AND current_setting('DateStyle') NOT LIKE 'German%' AND current_setting('statement_timeout') = '0'",
    "t",
  ],
  "parameters of pg_task": [
    "SET pg_task.max = 7",
    "SELECT coalesce(current_setting('pg_task.max', true), '') = ''",
    "t",
  ],
  "prepared statements": ["PREPARE trace AS SELECT 1", "SELECT count(*) FROM pg_prepared_statements", "0"],
  "advisory locks": [
    "SELECT pg_advisory_lock(4711)",
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 4711",
    "0",
  ],
  LISTEN: ["LISTEN trace", "SELECT count(*) FROM pg_listening_channels()", "0"],
  "LISTEN by a function": ["SELECT attend()", "SELECT count(*) FROM pg_listening_channels()", "0"],
  "transaction defaults": [
    "SET default_transaction_read_only = on; SET default_transaction_isolation = 'serializable'",
    "SELECT kind_of_transaction()",
    "off read committed",
  ],
  "transaction modes set by a function": ["SELECT only_read()", "SELECT kind_of_transaction()", "off read committed"],
  cursors: ["DECLARE trace CURSOR WITH HOLD FOR SELECT 1", "SELECT count(*) FROM pg_cursors", "0"],
  "session authorization": [
    `SET SESSION AUTHORIZATION ${role}`,
    `SELECT session_user <> '${role}' AND current_user <> '${role}'`,
    "t",
  ],
  role: [`SET ROLE ${role}`, `SELECT current_user <> '${role}'`, "t"],
  "the value of a sequence": ["SELECT nextval('numbers')", "SELECT counted()", "f"],
  "an open transaction": [
    "BEGIN; SELECT 1",
    "SELECT statement_timestamp() >= now() AND txid_current_if_assigned() IS NULL",
    "t",
  ],
  "a task's identity": [
    "SELECT set_config('pg_task.id', '-99', false)",
    "SELECT current_setting('pg_task.id') <> '-99'",
    "t",
  ],
});
