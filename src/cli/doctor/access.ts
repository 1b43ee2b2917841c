import { ownerRemedy } from "../../manager/schema/privilegeRemedy.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { fail, ok, warn, type Check } from "../inspection/check.js";

export async function mayRead(client: Client, { qualified }: TaskTable): Promise<boolean> {
  const { rows } = await client.query<{ may: boolean }>("SELECT has_table_privilege($1, 'SELECT') AS may", [qualified]);
  return rows[0]?.may === true;
}

export async function checkPrivileges(client: Client, { qualified }: TaskTable): Promise<Check> {
  const { rows } = await client.query<{
    lacking: string[];
    owns: boolean;
    owner: string;
    isOwnerSuperuser: boolean;
    sequence: string | null;
    user: string;
  }>(
    `SELECT ARRAY(SELECT r FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r
         WHERE NOT has_table_privilege($1, r)) AS lacking,
       pg_has_role(c.relowner, 'USAGE') AS owns, current_user AS "user", o.rolname AS owner,
       o.rolsuper AS "isOwnerSuperuser",
       (SELECT s FROM pg_get_serial_sequence($1, 'id') AS s WHERE NOT has_sequence_privilege(s, 'USAGE')) AS sequence
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner WHERE c.oid = $1::regclass`,
    [qualified],
  );
  const {
    lacking = [],
    owns = false,
    owner = "",
    isOwnerSuperuser = false,
    sequence = null,
    user = "",
  } = rows[0] ?? {};
  const become = ownerRemedy(qualified, user, { owner, isOwnerSuperuser });
  if (lacking.length > 0) {
    return fail(
      "rights",
      `${user} lacks ${lacking.join(", ")} on ${qualified}${owns ? "" : `, which ${owner} owns`}`,
      owns ? `GRANT ${lacking.join(", ")} ON ${qualified} TO ${identifier(user)}` : become,
    );
  }
  if (sequence !== null) {
    return fail(
      "rights",
      `${user} lacks USAGE on ${sequence}: tasks cannot repeat`,
      `GRANT USAGE ON SEQUENCE ${sequence} TO ${user}`,
    );
  }
  if (!owns) {
    return warn(
      "rights",
      `${user} does not own ${qualified}, ${owner} does: changed defaults and migrations cannot be applied`,
      become,
    );
  }
  return ok("rights", `${user} owns ${qualified}`);
}

/**
 * Checks for active row security. The manager sets row_security = off, so that the server raises an error instead of
 * silently hiding rows.
 */
export async function checkRowSecurity(client: Client, { qualified }: TaskTable): Promise<Check> {
  const { rows } = await client.query<{ active: boolean }>("SELECT row_security_active($1) AS active", [qualified]);
  if (rows[0]?.active !== true) return ok("row security", "does not hide tasks from the entry's user");
  return fail(
    "row security",
    "hides tasks from the entry's user, so the manager does not start",
    `make the entry's user the table's owner without FORCE ROW LEVEL SECURITY, or ALTER ROLE … BYPASSRLS`,
  );
}

/** Settings of the entry's role or database that break or limit the entry's tasks. */
const harmfulSettings: readonly {
  readonly name: string;
  readonly isHarmful: (value: string) => boolean;
  readonly level: "warn" | "fail";
  readonly why: string;
}[] = [
  {
    name: "session_replication_role",
    isHarmful: (value) => value !== "origin",
    level: "fail",
    why: "triggers do not fire for this role",
  },
  {
    name: "default_transaction_read_only",
    isHarmful: (value) => value === "on",
    level: "warn",
    why: "tasks may not write; if it is set for the database or the server, they wait",
  },
  {
    name: "statement_timeout",
    isHarmful: (value) => value !== "0",
    level: "warn",
    why: "it cancels tasks that take longer",
  },
  {
    name: "transaction_timeout",
    isHarmful: (value) => value !== "0",
    level: "warn",
    why: "it ends the sessions of tasks that take longer",
  },
  {
    name: "idle_session_timeout",
    isHarmful: (value) => value !== "0",
    level: "warn",
    why: "it ends sessions that wait for their next task",
  },
];

export async function checkRoleSettings(client: Client): Promise<Check[]> {
  // The command's own connection overrides some of these settings. Therefore, the query reads the values that are set
  // for the role and the database.
  const { rows } = await client.query<{ name: string; value: string; place: string | null }>(
    `SELECT s.name, place, coalesce(made.value,
         CASE WHEN s.source IN ('client', 'session') THEN s.boot_val ELSE current_setting(s.name) END) AS value
     FROM pg_catalog.pg_settings AS s LEFT JOIN LATERAL (
       SELECT split_part(c, '=', 2) AS value, CASE WHEN d.setrole = 0 AND d.setdatabase = 0 THEN 'ROLE ALL'
           WHEN d.setrole = 0 THEN format('DATABASE %I', current_database())
           WHEN d.setdatabase = 0 THEN format('ROLE %I', current_user)
           ELSE format('ROLE %I IN DATABASE %I', current_user, current_database()) END AS place
       FROM pg_catalog.pg_db_role_setting AS d, unnest(d.setconfig) AS c
       WHERE d.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
         AND d.setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user))
         AND split_part(c, '=', 1) = s.name
       ORDER BY d.setrole <> 0 DESC, d.setdatabase <> 0 DESC LIMIT 1
     ) AS made ON true WHERE s.name = ANY ($1::text[])`,
    [harmfulSettings.map(({ name }) => name)],
  );
  const made = new Map(rows.map((row) => [row.name, row]));
  const found = harmfulSettings.flatMap(({ name, isHarmful, level, why }) => {
    const { value, place = null } = made.get(name) ?? {};
    if (value === undefined || !isHarmful(value)) return [];
    const remedy =
      place === null
        ? `set in the server's configuration: override it with ALTER ROLE … SET ${name}`
        : `ALTER ${place} RESET ${name}`;
    const make = level === "fail" ? fail : warn;
    return [make("role settings", `${name} is ${value}: ${why}`, remedy)];
  });
  return found.length > 0 ? found : [ok("role settings", "no harmful settings for the entry's user")];
}
