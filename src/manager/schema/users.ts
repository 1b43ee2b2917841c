import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Entry } from "../../shared/config/types.js";
import { PgTaskError } from "../../shared/errors.js";
import { packageFile } from "../../shared/packageFile.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { columnComments, hashDefinition } from "./columns.js";
import { render, statements } from "./migrations.js";
import type { TaskTable } from "./taskTable.js";
import { isTrustedOwner } from "./trustedOwner.sql.js";

const text = readFileSync(packageFile("src/manager/schema/users.sql"), "utf8");

/** The comment of the function that decides whose task it is begins with this text. A digest of its source follows. */
const ownComment = "pg-task author ";

/**
 * With users, groups are told apart by their role too. The value for a row without a role stays what it was. Without a
 * separator, the groups `x` of the role `webapp` and `xweb` of the role `app` would be one.
 */
const hashWithRole = hashDefinition.replace(
  "coalesce(remote, '')",
  String.raw`coalesce(remote, '') || coalesce(E'\x1f' || role::text, '')`,
);

interface State {
  readonly kind: string;
  readonly owner: string;
  readonly isOwner: boolean;
  readonly hasUsers: boolean;
  /** Whether another object, or a table of another role, has the name of the list of roles. */
  readonly isTaken: boolean;
  /** The owner of a column's type, if the manager does not trust it: its casts and checks run as whoever writes. */
  readonly typeOwner: string | null;
  readonly hash: string | null;
  readonly comment: string | null;
  /** Whether `finish` is the one of users.sql. Whatever creates objects again brings back the other one. */
  readonly isFinishSafe: boolean;
  readonly isSecured: boolean;
}

/**
 * Lets each task of the table run as the role in its row, if the entry says `users`: creates what users.sql describes,
 * and gives each role groups of its own, for which the server rewrites the table once.
 *
 * @returns whether anything was changed
 * @throws PgTaskError SCHEMA_INCOMPATIBLE, also if the table has users and the entry does not say so: all of their tasks
 *   would run as the owner
 */
export async function ensureUsers(client: Client, table: TaskTable, entry: Entry): Promise<boolean> {
  const state = await readState(client, table);
  const refusal = whyRefused(state, entry);
  if (refusal !== null) throw new PgTaskError("SCHEMA_INCOMPATIBLE", `cannot serve ${table.qualified}: ${refusal}`);
  table.usersOwner = entry.users ? state.owner : null;
  if (!entry.users) return false;
  const isHashed = hasRole(state);
  const digest = createHash("sha256").update(render(text, table)).digest("hex").slice(0, 16);
  const isCurrent =
    state.comment === `${ownComment}${digest}` && state.hasUsers && state.isFinishSafe && state.isSecured;
  if (isHashed && isCurrent) return false;
  if (!isHashed) await replaceHash(client, table);
  if (!isCurrent) {
    await client.query(render(text, table));
    await client.query(render(`COMMENT ON FUNCTION :"schema".:"authorFunction"() IS '${ownComment}${digest}'`, table));
  }
  return true;
}

/** What `check` says of a table that exists: why the entry cannot serve it, and what its start would change. */
export async function inspectUsers(
  client: Client,
  table: TaskTable,
  entry: Pick<Entry, "users" | "create">,
): Promise<{ readonly refusal: string | null; readonly change: string | null }> {
  const state = await readState(client, table);
  const rewritten = hasRole(state) ? "" : ", for which it is rewritten";
  const change = entry.users && !state.hasUsers ? `would get users${rewritten}` : null;
  return { refusal: whyRefused(state, entry), change };
}

const hasRole = ({ hash }: State): boolean => hash?.includes("role") === true;

function whyRefused(state: State, { users, create }: Pick<Entry, "users" | "create">): string | null {
  if (!users && !state.hasUsers) return null;
  if (!users)
    return `its tasks run as their users, but its entry does not say "users": true, so they would all run as ${state.owner}`;
  if (state.kind === "p") return '"users": true does not work for a partitioned table';
  if (!state.isOwner) return `with "users": true, the entry's user must be its owner, ${state.owner}`;
  // Whoever owns it would decide who logs in for whom.
  if (state.isTaken)
    return "another object, or a table of another role, has the name of the list of roles: rename or drop it";
  if (state.typeOwner !== null)
    return `with "users": true, no type of its columns may belong to role ${identifier(state.typeOwner)}, which could let others run its functions`;
  if (state.hash === null) return 'with "users": true, its column hash must be a generated one';
  return create || state.hasUsers ? null : 'it has no users yet, and its entry says "create": false';
}

/** Inserting roles look up here which roles have a login. Comes after `revokeDefaultGrants`. */
export async function grantRoleNames(client: Client, { usersOwner, qualifiedRoles }: TaskTable): Promise<void> {
  if (usersOwner !== null) await client.query(`GRANT SELECT (role) ON ${qualifiedRoles} TO PUBLIC`);
}

async function replaceHash(client: Client, table: TaskTable): Promise<void> {
  const dueIndex = statements.filter((statement) => statement.startsWith('CREATE INDEX :"dueIndex"'));
  const replacing = [
    `ALTER TABLE :"schema".:"table" DROP COLUMN hash, ADD COLUMN hash ${hashWithRole}`,
    ...dueIndex,
    columnComments(table, [{ name: "hash" }, { name: "role" }]),
  ];
  await client.query(render(replacing.join(";\n"), table));
}

async function readState(client: Client, table: TaskTable): Promise<State> {
  const { rows } = await client.query<State>(
    `SELECT c.relkind AS kind, pg_catalog.pg_get_userbyid(c.relowner) AS owner,
       c.relowner = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user) AS "isOwner",
       EXISTS (SELECT FROM pg_catalog.pg_class AS r WHERE r.relnamespace = c.relnamespace AND r.relname = $2
         AND r.relkind = 'r' AND r.relowner = c.relowner) AS "hasUsers",
       EXISTS (SELECT FROM pg_catalog.pg_class AS r WHERE r.relnamespace = c.relnamespace AND r.relname = $2
         AND (r.relkind <> 'r' OR r.relowner <> c.relowner)) AS "isTaken",
       (SELECT pg_catalog.pg_get_userbyid(y.typowner) FROM pg_catalog.pg_attribute AS a
         JOIN pg_catalog.pg_type AS e ON e.oid = a.atttypid JOIN pg_catalog.pg_type AS y ON y.oid IN (e.oid, e.typelem)
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND NOT ${isTrustedOwner("y.typowner", "$1")} LIMIT 1) AS "typeOwner",
       (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid) FROM pg_catalog.pg_attribute AS a
         JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE a.attrelid = c.oid AND a.attname = 'hash' AND a.attgenerated = 's') AS hash,
       (SELECT pg_catalog.obj_description(p.oid, 'pg_proc') FROM pg_catalog.pg_proc AS p
         WHERE p.pronamespace = c.relnamespace AND p.proname = $3 AND p.pronargs = 0) AS comment,
       coalesce((SELECT p.prosecdef AND p.proowner = c.relowner FROM pg_catalog.pg_proc AS p
         WHERE p.pronamespace = c.relnamespace AND p.proname = $4 AND p.pronargs = 4), false) AS "isFinishSafe",
       c.relrowsecurity AND EXISTS (SELECT FROM pg_catalog.pg_policy AS y WHERE y.polrelid = c.oid AND y.polname = $5)
         AND 2 = (SELECT count(*) FROM pg_catalog.pg_trigger AS t
           WHERE t.tgrelid = c.oid AND t.tgname IN ($6, $7) AND t.tgenabled <> 'D') AS "isSecured"
     FROM pg_catalog.pg_class AS c WHERE c.oid = $1::pg_catalog.regclass`,
    [
      table.qualified,
      table.roleTable,
      table.authorFunction,
      table.finish,
      table.rolePolicy,
      table.authorInsertTrigger,
      table.authorUpdateTrigger,
    ],
  );
  const [state] = rows;
  if (state === undefined) throw new PgTaskError("SCHEMA_MISSING", `table ${table.qualified} is missing`);
  return state;
}
