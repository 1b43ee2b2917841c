import { PgTaskError } from "../../shared/errors.js";
import type { ExecutorParameters } from "../../shared/ipc/executorMessages.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { serversOf, withServers, type ConnectionTarget } from "../../shared/postgres/target/target.js";

export const setRoleSql = (role: string): string => `SET ROLE ${identifier(role)}`;

/** Where and as whom sessions of this role log in. Null stands for the target's own user. */
export function targetOf({ target, logins }: Pick<ExecutorParameters, "target" | "logins">, role: string | null) {
  if (role === null) return target;
  const login = logins?.[role];
  if (login === undefined) throw new PgTaskError("INTERNAL", `role ${role} has no login`);
  // Neither the password nor the certificate of the table's owner is of any use to another user.
  const { sslcert: _, sslkey: __, othersPasswordFile, passwordFile = othersPasswordFile, ...rest } = target;
  const password = login.password === null ? {} : { password: login.password };
  const [first, ...others] = serversOf(target).map(({ password: ___, ...server }) => ({ ...server, ...password }));
  const own: ConnectionTarget = { ...rest, user: login.user };
  const looksUp = login.password === null && passwordFile !== undefined ? { passwordFile } : {};
  return { ...(first === undefined ? own : withServers(own, [first, ...others])), ...looksUp };
}

/** Why this login is more than the role, so that tasks of the role could do more than the role may. Null if it is not. */
export function excessSql(role: string, table: string): string {
  const name = `${literal(role)}::pg_catalog.name`;
  return `SELECT CASE WHEN me.rolsuper OR own.rolsuper THEN 'is a superuser'
  WHEN me.oid OPERATOR(pg_catalog.<>) own.oid AND me.oid OPERATOR(pg_catalog.=) (SELECT c.relowner FROM pg_catalog.pg_class AS c
    WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(${literal(table)})) THEN 'is the owner of the table'
  WHEN NOT pg_catalog.pg_has_role(me.oid, own.oid, 'MEMBER') THEN 'is not a member of the role'
  WHEN (me.rolcreaterole, me.rolcreatedb, me.rolreplication, me.rolbypassrls) OPERATOR(pg_catalog.<>) (false, false, false, false)
    AND me.oid OPERATOR(pg_catalog.<>) own.oid THEN 'has attributes of its own, such as CREATEDB'
  WHEN EXISTS (SELECT FROM pg_catalog.pg_roles AS o WHERE o.oid OPERATOR(pg_catalog.<>) me.oid
    AND pg_catalog.pg_has_role(me.oid, o.oid, 'MEMBER') AND NOT pg_catalog.pg_has_role(own.oid, o.oid, 'MEMBER'))
    THEN 'is also a member of roles that the role is no member of' END
FROM pg_catalog.pg_roles AS me, pg_catalog.pg_roles AS own
WHERE me.rolname OPERATOR(pg_catalog.=) session_user AND own.rolname OPERATOR(pg_catalog.=) ${name}`;
}

export const excessError = (role: string, why: string): PgTaskError =>
  new PgTaskError("CONNECTION_REJECTED", `tasks of role ${role} do not run: the login for it ${why}`);
