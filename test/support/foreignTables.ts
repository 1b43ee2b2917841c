/** Tables that pg-task did not create, each in a schema of its own. */

export type MakeTable = (schema: string) => string;

const setting = (name: string, type: string): string => `(current_setting('pg_task.${name}'::text))::${type}`;

/** The extension's current layout. */
export const extensionTable: MakeTable = (schema) => `
  CREATE SCHEMA ${schema};
  CREATE TYPE ${schema}.state AS ENUM ('PLAN', 'GONE', 'TAKE', 'WORK', 'DONE', 'FAIL', 'STOP');
  CREATE TABLE ${schema}.task (
    id bigserial PRIMARY KEY, parent bigint DEFAULT NULLIF(${setting("id", "bigint")}, 0),
    plan timestamptz NOT NULL DEFAULT statement_timestamp(), start timestamptz, stop timestamptz,
    active interval NOT NULL DEFAULT ${setting("active", "interval")} CHECK (active > interval '0'),
    live interval NOT NULL DEFAULT ${setting("live", "interval")} CHECK (live >= interval '0'),
    repeat interval NOT NULL DEFAULT ${setting("repeat", "interval")} CHECK (repeat >= interval '0'),
    timeout interval NOT NULL DEFAULT ${setting("timeout", "interval")} CHECK (timeout >= interval '0'),
    count integer NOT NULL DEFAULT ${setting("count", "integer")} CHECK (count >= 0),
    max integer NOT NULL DEFAULT ${setting("max", "integer")}, pid integer,
    state ${schema}.state NOT NULL DEFAULT 'PLAN',
    delete boolean NOT NULL DEFAULT ${setting("delete", "boolean")},
    drift boolean NOT NULL DEFAULT ${setting("drift", "boolean")},
    header boolean NOT NULL DEFAULT ${setting("header", "boolean")},
    save boolean NOT NULL DEFAULT ${setting("save", "boolean")},
    string boolean NOT NULL DEFAULT ${setting("string", "boolean")},
    delimiter "char" NOT NULL DEFAULT ${setting("delimiter", '"char"')},
    escape "char" NOT NULL DEFAULT ${setting("escape", '"char"')},
    quote "char" NOT NULL DEFAULT ${setting("quote", '"char"')},
    data text, error text, "group" text NOT NULL DEFAULT current_setting('pg_task.group'::text),
    input text NOT NULL, "null" text NOT NULL DEFAULT current_setting('pg_task.null'::text),
    output text, remote text);
  COMMENT ON TABLE ${schema}.task IS 'Tasks';
  COMMENT ON COLUMN ${schema}.task.input IS 'Sql command(s) to execute';
  CREATE INDEX ON ${schema}.task (hashtext("group" || COALESCE(remote, '')));
  CREATE INDEX ON ${schema}.task (input);
  CREATE INDEX ON ${schema}.task (parent);
  CREATE INDEX ON ${schema}.task (plan);
  CREATE INDEX ON ${schema}.task (state);
  CREATE FUNCTION ${schema}.task_wake_up() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp SECURITY DEFINER AS $function$ BEGIN
      PERFORM pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'userlock' AND objsubid = 3 AND objid = 1;
      RETURN NULL;
    END $function$;
  CREATE TRIGGER task_wake_up AFTER INSERT OR DELETE OR UPDATE OF plan ON ${schema}.task
    FOR EACH STATEMENT EXECUTE FUNCTION ${schema}.task_wake_up()`;

/** The extension's layout, with the addition from its README for running each task as the role that inserted it. */
export const extensionTableWithUserColumn: MakeTable = (schema) => `${extensionTable(schema)};
  ALTER TABLE ${schema}.task ADD COLUMN "user" name NOT NULL DEFAULT CURRENT_USER;
  CREATE FUNCTION ${schema}.task_user() RETURNS trigger LANGUAGE plpgsql AS $function$ BEGIN
    IF TG_OP = 'UPDATE' AND NEW."user" IS DISTINCT FROM OLD."user" THEN RAISE 'never'; END IF;
    RETURN NEW;
  END $function$;
  CREATE TRIGGER task_user BEFORE INSERT OR UPDATE OF "user" ON ${schema}.task
    FOR EACH ROW EXECUTE FUNCTION ${schema}.task_user();
  CREATE FUNCTION ${schema}.task_state() RETURNS trigger LANGUAGE plpgsql AS $function$ BEGIN
    IF OLD.state = 'PLAN' AND NEW.state = 'WORK' THEN RAISE 'first it is taken'; END IF;
    RETURN NEW;
  END $function$;
  CREATE TRIGGER task_state BEFORE UPDATE OF state ON ${schema}.task
    FOR EACH ROW EXECUTE FUNCTION ${schema}.task_state()`;

/** An earlier layout of the extension: with hash and five states, without save and data. */
export const olderExtensionTable =
  (hash: "generated" | "ordinary"): MakeTable =>
  (schema) =>
    `
  CREATE SCHEMA ${schema};
  CREATE TYPE ${schema}.state AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'STOP');
  CREATE TABLE ${schema}.task (
    id bigserial NOT NULL PRIMARY KEY, parent bigint DEFAULT NULLIF(current_setting('pg_task.id')::bigint, 0),
    plan timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, start timestamptz, stop timestamptz,
    active interval NOT NULL DEFAULT current_setting('pg_task.default_active')::interval CHECK (active > '0 sec'),
    live interval NOT NULL DEFAULT current_setting('pg_task.default_live')::interval CHECK (live >= '0 sec'),
    repeat interval NOT NULL DEFAULT current_setting('pg_task.default_repeat')::interval CHECK (repeat >= '0 sec'),
    timeout interval NOT NULL DEFAULT current_setting('pg_task.timeout')::interval CHECK (timeout >= '0 sec'),
    count int NOT NULL DEFAULT current_setting('pg_task.count')::int CHECK (count >= 0),
    hash int NOT NULL ${hash === "generated" ? `GENERATED ALWAYS AS (hashtext("group" || COALESCE(remote, ''))) STORED` : ""},
    max int NOT NULL DEFAULT current_setting('pg_task.max')::int, pid int,
    state ${schema}.state NOT NULL DEFAULT 'PLAN',
    delete bool NOT NULL DEFAULT current_setting('pg_task.delete')::bool,
    drift bool NOT NULL DEFAULT current_setting('pg_task.drift')::bool,
    header bool NOT NULL DEFAULT current_setting('pg_task.header')::bool,
    string bool NOT NULL DEFAULT current_setting('pg_task.string')::bool,
    delimiter "char" NOT NULL DEFAULT current_setting('pg_task.default_delimiter')::"char",
    escape "char" NOT NULL DEFAULT current_setting('pg_task.default_escape')::"char",
    quote "char" NOT NULL DEFAULT current_setting('pg_task.default_quote')::"char",
    error text, "group" text NOT NULL DEFAULT current_setting('pg_task.default_group'),
    input text NOT NULL, "null" text NOT NULL DEFAULT current_setting('pg_task.default_null'),
    output text, remote text);
  CREATE INDEX ON ${schema}.task (hash);
  CREATE INDEX ON ${schema}.task (plan)`;

/** A user's own table: other types, column order and defaults, and additional columns. */
export const userTable: MakeTable = (schema) => `
  CREATE SCHEMA ${schema};
  CREATE DOMAIN ${schema}.sql AS varchar NOT NULL CHECK (VALUE <> 'DROP DATABASE');
  CREATE DOMAIN ${schema}.span AS interval;
  CREATE TABLE ${schema}.task (
    customer varchar(20) NOT NULL DEFAULT 'nobody', input ${schema}.sql,
    "state" varchar(8) NOT NULL DEFAULT 'PLAN' CHECK (state IN ('PLAN', 'TAKE', 'WORK', 'DONE', 'FAIL', 'GONE', 'STOP')),
    plan timestamp NOT NULL DEFAULT now(), start timestamp(3), stop date,
    "group" varchar(30) DEFAULT 'mine', max smallint, count bigint DEFAULT 0, timeout ${schema}.span,
    delimiter char(1), quote varchar(1), escape text, pid bigint, output varchar, error text,
    id int GENERATED BY DEFAULT AS IDENTITY, "null" char(3) DEFAULT 'nil', remote varchar(200), parent int)`;

/** A table with as few columns as possible. Its state is an enum with another name and as few labels as possible. */
export const userEnumTable: MakeTable = (schema) => `
  CREATE SCHEMA ${schema};
  CREATE TYPE ${schema}."Job State" AS ENUM ('DONE', 'PLAN', 'waiting for approval');
  CREATE TABLE ${schema}.task (
    id bigint PRIMARY KEY, plan timestamptz NOT NULL, input text NOT NULL,
    state ${schema}."Job State" NOT NULL DEFAULT 'waiting for approval')`;

/** The layout of the extension's first version. */
export const firstVersionTable: MakeTable = (schema) => `
  CREATE SCHEMA ${schema};
  CREATE TABLE ${schema}.task (
    id bigserial NOT NULL PRIMARY KEY, dt timestamp NOT NULL DEFAULT now(), start timestamp, stop timestamp,
    queue text NOT NULL DEFAULT 'default', max int, pid int, request text NOT NULL, response text,
    state text NOT NULL DEFAULT 'QUEUE', timeout interval, delete boolean NOT NULL DEFAULT false,
    repeat interval, drift boolean NOT NULL DEFAULT true);
  CREATE INDEX ON ${schema}.task (dt);
  CREATE INDEX ON ${schema}.task (state)`;

const partitionedColumns = (schema: string): string => `
    id bigserial, plan timestamptz NOT NULL DEFAULT statement_timestamp(), input text NOT NULL,
    state ${schema}.state NOT NULL DEFAULT 'PLAN', output text, error text, "group" text NOT NULL DEFAULT 'group'`;

const stateType = (schema: string): string =>
  `CREATE TYPE ${schema}.state AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'FAIL', 'GONE', 'STOP')`;

export const partitionedByPlan: MakeTable = (schema) => `
  CREATE SCHEMA ${schema}; ${stateType(schema)};
  CREATE TABLE ${schema}.task (${partitionedColumns(schema)}, PRIMARY KEY (id, plan)) PARTITION BY RANGE (plan);
  CREATE TABLE ${schema}.before PARTITION OF ${schema}.task FOR VALUES FROM (MINVALUE) TO ('2030-01-01');
  CREATE TABLE ${schema}."Later on" PARTITION OF ${schema}.task FOR VALUES FROM ('2030-01-01') TO (MAXVALUE)
    PARTITION BY HASH (id);
  CREATE TABLE ${schema}.later_0 PARTITION OF ${schema}."Later on" FOR VALUES WITH (MODULUS 2, REMAINDER 0);
  CREATE TABLE ${schema}.later_1 PARTITION OF ${schema}."Later on" FOR VALUES WITH (MODULUS 2, REMAINDER 1)`;

export const partitionedById: MakeTable = (schema) => `
  CREATE SCHEMA ${schema}; ${stateType(schema)};
  CREATE TABLE ${schema}.task (${partitionedColumns(schema)}, PRIMARY KEY (id)) PARTITION BY HASH (id);
  CREATE TABLE ${schema}.part_0 PARTITION OF ${schema}.task FOR VALUES WITH (MODULUS 2, REMAINDER 0);
  CREATE TABLE ${schema}.part_1 PARTITION OF ${schema}.task FOR VALUES WITH (MODULUS 2, REMAINDER 1)`;
