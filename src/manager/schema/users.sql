-- What a table needs whose tasks run as their users ("users": true), beside what migration.sql describes. The statements
-- are repeatable. src/manager/schema/users.ts runs them.

CREATE TABLE IF NOT EXISTS :"schema".:"roleTable" (
  role name PRIMARY KEY,
  login name NOT NULL,
  max integer CHECK (max > 0)
);

COMMENT ON TABLE :"schema".:"roleTable" IS 'Roles whose tasks run as themselves';
COMMENT ON COLUMN :"schema".:"roleTable".role IS 'Role, as in the column role of its tasks';
COMMENT ON COLUMN :"schema".:"roleTable".login IS 'Who logs in for it: the role itself, or a member of nothing but the role';
COMMENT ON COLUMN :"schema".:"roleTable".max IS 'Most sessions of the role; null for no limit but pg_conf.max';

-- A session of a superuser could do anything, whatever its tasks are allowed.
CREATE OR REPLACE FUNCTION :"schema".:"roleFunction"() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
  super name := (SELECT r.rolname FROM pg_roles AS r WHERE r.rolsuper AND r.rolname = ANY (ARRAY[NEW.role, NEW.login]) LIMIT 1);
BEGIN
  IF (TG_OP = 'INSERT' OR NEW.role <> OLD.role) AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = NEW.role) THEN
    RAISE EXCEPTION 'role "%" does not exist', NEW.role USING ERRCODE = 'undefined_object';
  END IF;
  IF super IS NOT NULL THEN
    RAISE EXCEPTION 'tasks may not run as %, because it is a superuser', super USING ERRCODE = 'insufficient_privilege';
  END IF;
  -- A task can become the login of its role.
  IF NEW.login <> NEW.role AND NEW.login = (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = TG_RELID)
    OR EXISTS (SELECT FROM :"schema".:"roleTable" AS r WHERE r.role <> NEW.role
      AND (r.login = NEW.login OR r.role = NEW.login AND NEW.login <> NEW.role OR r.login = NEW.role AND r.login <> r.role)) THEN
    RAISE EXCEPTION 'the login % of role % also serves another role', NEW.login, NEW.role USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $function$;

COMMENT ON FUNCTION :"schema".:"roleFunction"() IS 'pg-task roles';

DROP TRIGGER IF EXISTS :"roleFunction" ON :"schema".:"roleTable";
CREATE TRIGGER :"roleFunction" BEFORE INSERT OR UPDATE ON :"schema".:"roleTable" FOR EACH ROW
  EXECUTE FUNCTION :"schema".:"roleFunction"();

-- Decides whose task it is. The table's owner may write tasks of every role, and anybody else those of the roles that
-- they could become by SET ROLE. The function runs as whoever writes. The manager, which is the owner, plans successors
-- of a role even if it has been taken off the list; their run then says why it cannot be.
CREATE OR REPLACE FUNCTION :"schema".:"authorFunction"() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
  may text := CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END;
  owner name := (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = TG_RELID);
BEGIN
  NEW.role := coalesce(NEW.role, current_user);
  IF current_user = owner AND current_setting('pgtask.manager', true) = 'on' THEN
    RETURN NEW;
  END IF;
  IF current_user <> owner THEN
    IF TG_OP = 'UPDATE' AND NOT pg_has_role(coalesce(OLD.role, owner), may) THEN
      RAISE EXCEPTION 'task % runs as %, and % may not change what it runs', OLD.id, coalesce(OLD.role, owner), current_user
        USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = NEW.role) THEN
      RAISE EXCEPTION 'role "%" does not exist', NEW.role USING ERRCODE = 'undefined_object';
    END IF;
    IF NOT pg_has_role(NEW.role, may) THEN
      RAISE EXCEPTION '% may not let a task run as %', current_user, NEW.role USING ERRCODE = 'insufficient_privilege';
    END IF;
  END IF;
  IF NEW.role <> owner AND NOT EXISTS (SELECT FROM :"schema".:"roleTable" AS r WHERE r.role = NEW.role) THEN
    RAISE EXCEPTION 'tasks cannot run as %, which has no login in %', NEW.role, :'qualifiedRoles'
      USING ERRCODE = 'insufficient_privilege',
      HINT = CASE WHEN EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = NEW.role AND r.rolsuper)
        THEN format('Tasks cannot run as a superuser. Name a role of %s in the column role.', :'qualifiedRoles')
        ELSE format('Its administrator can list it: INSERT INTO %s (role, login) VALUES (%L, %L)', :'qualifiedRoles', NEW.role, 'task_' || NEW.role) END;
  END IF;
  RETURN NEW;
END $function$;

-- pg_roles, and not the name of the role: pg_has_role fails if a role of that name has been dropped.
DO $function$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_policy AS p
      WHERE p.polrelid = :'qualified'::pg_catalog.regclass AND p.polname = :'rolePolicy') THEN
    CREATE POLICY :"rolePolicy" ON :"schema".:"table"
      USING (role = ANY (ARRAY(SELECT r.rolname FROM pg_catalog.pg_roles AS r WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))))
      WITH CHECK (role = ANY (ARRAY(SELECT r.rolname FROM pg_catalog.pg_roles AS r WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))));
  END IF;
END $function$;

ALTER TABLE :"schema".:"table" ENABLE ROW LEVEL SECURITY, ALTER COLUMN role SET DEFAULT current_user;

DROP TRIGGER IF EXISTS :"authorInsertTrigger" ON :"schema".:"table";
CREATE TRIGGER :"authorInsertTrigger" BEFORE INSERT ON :"schema".:"table" FOR EACH ROW
  EXECUTE FUNCTION :"schema".:"authorFunction"();

DROP TRIGGER IF EXISTS :"authorUpdateTrigger" ON :"schema".:"table";
CREATE TRIGGER :"authorUpdateTrigger" BEFORE UPDATE OF role, input, args, remote, rule ON :"schema".:"table" FOR EACH ROW
  EXECUTE FUNCTION :"schema".:"authorFunction"();

-- As in migration.sql, but the session that calls it must not write the ledgers, and any SQL can call it. It therefore
-- writes a proof only for a row that the server process that it runs in has, and whose role may be that of the session.
-- Both are asked of the server. A deleted row gets no proof, because nobody would look for it.
CREATE OR REPLACE FUNCTION :"schema".:"finish"(task bigint, taken bigint, holder text, ledger integer)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
#variable_conflict use_variable
DECLARE
  found_state text;
  found_pid bigint;
  is_own bool;
  is_running bool;
BEGIN
  UNLISTEN *;
  IF txid_current_if_assigned() IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT t.state::text, t.pid, t.owner = holder AND split_part(t.owner, ' ', 1) = pg_backend_pid()::text
    AND (date_part('epoch', t.take) * 1000000)::bigint = taken AND pg_has_role(session_user, coalesce(t.role::name, current_user), 'MEMBER')
  INTO found_state, found_pid, is_own FROM :"schema".:"table" AS t WHERE t.id = task;
  IF NOT FOUND THEN
    IF current_setting('pgtask.deleted', true) = concat(:'qualified'::regclass::oid, ' ', task) THEN
      RETURN false;
    END IF;
    RAISE EXCEPTION 'task was stopped or deleted while it ran' USING ERRCODE = 'PGT01';
  END IF;
  is_running := found_state = ANY (ARRAY['TAKE', 'WORK']);
  IF is_own IS NOT TRUE OR NOT is_running AND found_state = 'STOP' AND coalesce(found_pid, 0) >= 0 THEN
    RAISE EXCEPTION 'task was stopped or deleted while it ran' USING ERRCODE = 'PGT01';
  ELSIF NOT is_running AND coalesce(found_pid, 0) >= 0 THEN
    RAISE EXCEPTION 'task was set to % while it ran', found_state USING ERRCODE = 'PGT01';
  END IF;
  IF ledger = 1 THEN
    INSERT INTO :"schema".:"ledger1" VALUES (task, taken, is_running, now(), clock_timestamp());
  ELSE
    INSERT INTO :"schema".:"ledger2" VALUES (task, taken, is_running, now(), clock_timestamp());
  END IF;
  IF is_running THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  RETURN is_running;
END $function$;

-- Sessions of all roles call these. Default privileges may have revoked EXECUTE from PUBLIC.
GRANT EXECUTE ON FUNCTION :"schema".:"finish"(bigint, bigint, text, integer), :"schema".:"reset"(),
  :"schema".:"reset"(text, text, text, integer, integer) TO PUBLIC;
