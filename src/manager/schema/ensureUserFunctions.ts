import { createHash } from "node:crypto";
import type { Client } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { asyncTrigger } from "./asyncTrigger.sql.js";
import { chain } from "./chain.sql.js";
import type { TaskTable } from "./taskTable.js";
import { isTrustedOwner } from "./trustedOwner.sql.js";

/**
 * A function that users call, and that pg-task itself does not need. Its comment begins with `comment`, and a digest of
 * the statement that created it follows. `purpose` is what users do with it, in the plural.
 */
type UserFunction = ReturnType<typeof asyncTrigger>;

const userFunctions = (table: TaskTable): UserFunction[] => [asyncTrigger(table), chain(table)];

/** Returns the functions that were not created, because another one is in the way, which stays. */
export async function ensureUserFunctions(client: Client, table: TaskTable): Promise<UserFunction[]> {
  const taken: UserFunction[] = [];
  for (const wanted of userFunctions(table)) {
    const comment = wanted.comment + createHash("sha256").update(wanted.create).digest("hex").slice(0, 16);
    const existing = await readFunction(client, table, wanted);
    if (existing?.ours === false) taken.push(wanted);
    if (existing?.ours === false || existing?.comment === comment) continue;
    await client.query(
      `${wanted.create};
COMMENT ON FUNCTION ${wanted.signature} IS ${literal(comment)};
GRANT EXECUTE ON FUNCTION ${wanted.signature} TO PUBLIC`,
    );
  }
  return taken;
}

/**
 * Returns the functions that the table does not have because another one has the name: one that pg-task did not create,
 * or that belongs to a role that the manager does not trust. Everyone who calls such a function runs it as themselves.
 */
export async function takenUserFunctions(client: Client, table: TaskTable): Promise<UserFunction[]> {
  const taken: UserFunction[] = [];
  for (const wanted of userFunctions(table)) {
    if ((await readFunction(client, table, wanted))?.ours === false) taken.push(wanted);
  }
  return taken;
}

async function readFunction(
  client: Client,
  { qualified }: TaskTable,
  { signature, comment: ownComment }: UserFunction,
): Promise<{ readonly comment: string | null; readonly ours: boolean } | null> {
  const { rows } = await client.query<{ comment: string | null; trusted: boolean }>(
    `SELECT pg_catalog.obj_description(p.oid, 'pg_proc') AS comment, ${isTrustedOwner("p.proowner", "$2")} AS trusted
     FROM pg_catalog.pg_proc AS p WHERE p.oid = pg_catalog.to_regprocedure($1)`,
    [signature, qualified],
  );
  const [found] = rows;
  if (found === undefined) return null;
  const { comment, trusted } = found;
  return { comment, ours: trusted && comment?.startsWith(ownComment) === true };
}
