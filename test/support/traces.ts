/**
 * Session state that a task may leave. Both the statements that leave the state and the query that looks for it are
 * inputs of tasks.
 */
export interface Trace {
  readonly leave: string;
  readonly look: string;
  /** The output of `look` if nothing was left. */
  readonly none: string;
}

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
  "temporary tables": {
    leave: "CREATE TEMP TABLE trace AS SELECT 1",
    look: "SELECT to_regclass('pg_temp.trace') IS NULL",
    none: "t",
  },
  settings: {
    leave: "SET work_mem = '12345kB'; SET DateStyle = 'German'",
    look: "SELECT current_setting('work_mem') <> '12345kB' AND current_setting('DateStyle') NOT LIKE 'German%'",
    none: "t",
  },
  "parameters of pg_task": {
    leave: "SET pg_task.max = 7",
    look: "SELECT coalesce(current_setting('pg_task.max', true), '') = ''",
    none: "t",
  },
  "prepared statements": {
    leave: "PREPARE trace AS SELECT 1",
    look: "SELECT count(*) FROM pg_prepared_statements",
    none: "0",
  },
  "advisory locks": {
    leave: "SELECT pg_advisory_lock(4711)",
    look: "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 4711",
    none: "0",
  },
  LISTEN: {
    leave: "LISTEN trace",
    look: "SELECT count(*) FROM pg_listening_channels()",
    none: "0",
  },
  "LISTEN by a function": {
    leave: "SELECT attend()",
    look: "SELECT count(*) FROM pg_listening_channels()",
    none: "0",
  },
  "transaction defaults": {
    leave: "SET default_transaction_read_only = on; SET default_transaction_isolation = 'serializable'",
    look: "SELECT kind_of_transaction()",
    none: "off read committed",
  },
  "transaction modes set by a function": {
    leave: "SELECT only_read()",
    look: "SELECT kind_of_transaction()",
    none: "off read committed",
  },
  cursors: {
    leave: "DECLARE trace CURSOR WITH HOLD FOR SELECT 1",
    look: "SELECT count(*) FROM pg_cursors",
    none: "0",
  },
  "session authorization": {
    leave: `SET SESSION AUTHORIZATION ${role}`,
    look: `SELECT session_user <> '${role}' AND current_user <> '${role}'`,
    none: "t",
  },
  role: {
    leave: `SET ROLE ${role}`,
    look: `SELECT current_user <> '${role}'`,
    none: "t",
  },
  "the value of a sequence": {
    leave: "SELECT nextval('numbers')",
    look: "SELECT counted()",
    none: "f",
  },
  "an open transaction": {
    leave: "BEGIN; SELECT 1",
    look: "SELECT statement_timestamp() >= now() AND txid_current_if_assigned() IS NULL",
    none: "t",
  },
  "a task's identity": {
    leave: "SELECT set_config('pg_task.id', '-99', false)",
    look: "SELECT current_setting('pg_task.id') <> '-99'",
    none: "t",
  },
});
