import type { Client } from "../../shared/postgres/client.js";
import { laneOf } from "../schema/lane.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isReady } from "../sql/fragments.sql.js";

export interface FoundRole {
  readonly login: string;
  readonly max: number | null;
  readonly role_exists: boolean;
  readonly is_super: boolean;
  readonly login_exists: boolean;
  readonly can_login: boolean;
  readonly is_member: boolean;
  /** Whether pg-task has made the login, and whether it would if it were missing. */
  readonly made: boolean;
  readonly may_be_made: boolean;
  /** What ALTER ROLE has set for the role and ALTER ROLE … IN DATABASE after it, as far as anybody may set it. */
  readonly settings: readonly (readonly [string, string])[];
  /** The databases for which the login has settings that a task can have made. Null stands for all. */
  readonly set_in: readonly (string | null)[];
  readonly version: number;
}

/** Reads what is to be known about a role and its login. Null if the role is not in the list. */
export async function readRole(
  client: Client,
  table: TaskTable,
  role: string,
  madeComment: string,
): Promise<FoundRole | null> {
  const { rows } = await client.query<FoundRole>({
    name: "role",
    text: `
SELECT f.login::text AS login, f.max, r.oid IS NOT NULL AS role_exists, coalesce(r.rolsuper, false) OR coalesce(l.rolsuper, false) AS is_super,
  l.oid IS NOT NULL AS login_exists, coalesce(l.rolcanlogin AND (l.rolvaliduntil IS NULL OR l.rolvaliduntil > now()), false) AS can_login,
  coalesce(pg_has_role(l.oid, r.oid, 'MEMBER'), false) AS is_member,
  coalesce(shobj_description(l.oid, 'pg_authid') = $2, false) AS made, f.login = concat('task_', f.role)::name AS may_be_made,
  current_setting('server_version_num')::integer AS version,
  ARRAY(SELECT b.datname::text FROM pg_db_role_setting AS d LEFT JOIN pg_database AS b ON b.oid = d.setdatabase WHERE d.setrole = l.oid
    AND EXISTS (SELECT FROM unnest(d.setconfig) AS e(entry) JOIN pg_settings AS s ON s.name = split_part(e.entry, '=', 1) WHERE s.context = 'user')) AS set_in,
  coalesce((SELECT json_agg(json_build_array(c.name, c.value) ORDER BY c.place) FROM (
    SELECT split_part(e.entry, '=', 1) AS name, substr(e.entry, strpos(e.entry, '=') + 1) AS value, d.setdatabase AS place
    FROM pg_db_role_setting AS d, unnest(d.setconfig) AS e(entry)
    WHERE d.setrole = r.oid AND d.setdatabase IN (0, (SELECT b.oid FROM pg_database AS b WHERE b.datname = current_database()))
  ) AS c LEFT JOIN pg_settings AS s ON s.name = c.name
  WHERE c.name ~ '^[A-Za-z_][A-Za-z0-9_.]*$' AND c.name NOT IN ('role', 'session_authorization') AND (s.context = 'user' OR strpos(c.name, '.') > 0)), '[]') AS settings
FROM ${table.qualifiedRoles} AS f LEFT JOIN pg_roles AS r ON r.rolname = f.role LEFT JOIN pg_roles AS l ON l.rolname = f.login
WHERE f.role = $1`,
    values: [role, madeComment],
  });
  return rows[0] ?? null;
}

/** Reads the ids of due tasks of a lane, at most `limit` in each of these groups. */
export async function readDueInLane(
  client: Client,
  table: TaskTable,
  { hashes, lane, limit }: { readonly hashes: readonly number[]; readonly lane: string; readonly limit: number },
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: "due in lane",
    text: `
SELECT d.id::text AS id FROM unnest($1::integer[]) AS g(hash) CROSS JOIN LATERAL (
  SELECT id FROM ${table.qualified}
  WHERE hash = ANY (ARRAY[g.hash]) AND ${isReady} AND ready AND plan <= now() AND ${laneOf(table)} = $2::text LIMIT $3
) AS d`,
    values: [hashes, lane, limit],
  });
  return rows.map(({ id }) => id);
}
