import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { queryOne } from "../../tasks/queryOne.js";
import { listRole, readTableRoles, unlisted, unopened } from "../../tasks/queries/roles.js";
import { fail, ok, warn, type Finding } from "../inspection.js";

/** Whether the tasks of each role can run, and nobody can run SQL as somebody else. */
export async function checkUsers(client: Client, table: TaskTable): Promise<Finding[]> {
  const roles = await readTableRoles(client, table);
  if (roles === null) return [ok("users", "all tasks run as the entry's user")];
  const { qualified } = table;
  const facts = await queryOne<{
    user: string;
    seesStarts: boolean;
    triggering: string[];
    policies: string[];
    secured: boolean;
  }>(
    client,
    `SELECT current_user AS "user", c.relrowsecurity AS secured,
       NOT pg_has_role(c.relowner, 'USAGE') OR pg_has_role('pg_read_all_stats', 'USAGE') AS "seesStarts",
       ARRAY(SELECT DISTINCT CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(x.grantee)) END
         FROM (SELECT c.relacl AS acl UNION ALL SELECT a.attacl FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid) AS g, aclexplode(g.acl) AS x
         WHERE x.privilege_type IN ('TRIGGER', 'REFERENCES') AND x.grantee <> c.relowner ORDER BY 1) AS triggering,
       ARRAY(SELECT p.polname::text FROM pg_catalog.pg_policy AS p
         WHERE p.polrelid = c.oid AND p.polpermissive AND p.polname <> $2 ORDER BY 1) AS policies
     FROM pg_catalog.pg_class AS c WHERE c.oid = $1::regclass`,
    [qualified, table.rolePolicy],
  );
  const found = roles.flatMap(({ role, problem }) =>
    problem === null
      ? []
      : fail("users", `tasks of role ${role} cannot run: ${problem}`, remedyOf(problem, role, table)),
  );
  if (!facts.secured) {
    const remedy = `ALTER TABLE ${qualified} ENABLE ROW LEVEL SECURITY, or restart pg-task`;
    found.push(fail("users", "row-level security is off: every role that may read the table sees all tasks", remedy));
  }
  if (facts.triggering.length > 0) {
    const who = facts.triggering.join(", ");
    const text = `${who} may create triggers on the table, or foreign keys to it, whose functions pg-task would run as its owner`;
    found.push(fail("users", text, `REVOKE TRIGGER, REFERENCES ON ${qualified} FROM ${who}`));
  }
  if (facts.policies.length > 0) {
    const text = `policies of yours let roles see or change the tasks of others: ${facts.policies.join(", ")}`;
    found.push(warn("users", text, "drop those that are not meant to"));
  }
  if (!facts.seesStarts) {
    const text = `${facts.user} does not see when sessions of other roles began, so a task of a session that died may wait until no other session has its pid`;
    found.push(warn("users", text, `GRANT pg_read_all_stats TO ${identifier(facts.user)}`));
  }
  if (found.length > 0) return found;
  return [
    ok(
      "users",
      roles.length === 0 ? "no role is listed yet" : `tasks run as ${roles.map(({ role }) => role).join(", ")}`,
    ),
  ];
}

function remedyOf(problem: string, role: string, table: TaskTable): string {
  const { qualified, schema } = table;
  if (problem === unlisted)
    return `list it again: ${listRole(table, role)}, or DELETE FROM ${qualified} WHERE role = ${literal(role)}: its due tasks fail`;
  if (problem.includes("USAGE")) return `GRANT USAGE ON SCHEMA ${identifier(schema)} TO ${identifier(role)}`;
  if (problem === unopened) return "see the log; its due tasks wait";
  return `correct this, or take ${role} off the list: its due tasks fail`;
}
