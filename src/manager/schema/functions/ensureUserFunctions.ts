import { createHash } from "node:crypto";
import type { Client } from "../../../shared/postgres/client.js";
import { literal } from "../../../shared/postgres/quoting.js";
import type { TaskTable } from "../taskTable.js";
import { isTrustedOwner } from "../trustedOwner.sql.js";
import { asyncTrigger } from "./asyncTrigger.sql.js";
import { chain, chainOfInputs, chainOfText } from "./chain.sql.js";
import { pause, resume, retry, run, signal, stop, wait } from "./changes.sql.js";
import { schedule, unschedule } from "./schedule.sql.js";

/**
 * A function that users call, and that pg-task itself does not need. Its comment begins with `comment`, and a digest of
 * the statement that created it follows. `purpose` is what users do with it, in the plural.
 */
type UserFunction = ReturnType<typeof asyncTrigger>;

const describeFunctions = [
  asyncTrigger,
  chain,
  chainOfInputs,
  chainOfText,
  schedule,
  unschedule,
  pause,
  resume,
  run,
  stop,
  retry,
  signal,
  wait,
];

const userFunctions = (table: TaskTable): UserFunction[] => describeFunctions.map((describe) => describe(table));

/** Returns the functions that were not created, because another one is in the way, which stays. */
export async function ensureUserFunctions(client: Client, table: TaskTable): Promise<UserFunction[]> {
  const found = await readFunctions(client, table);
  const taken = found.filter(({ isTaken }) => isTaken).map(({ wanted }) => wanted);
  const statements = found.flatMap(({ wanted, comment: present }) => {
    const comment = wanted.comment + createHash("sha256").update(wanted.create).digest("hex").slice(0, 16);
    // Functions with the same comment call each other.
    if (taken.some((each) => each.comment === wanted.comment) || present === comment) return [];
    return [
      wanted.create,
      `COMMENT ON ROUTINE ${wanted.signature} IS ${literal(comment)}`,
      `GRANT EXECUTE ON ROUTINE ${wanted.signature} TO PUBLIC`,
    ];
  });
  if (statements.length > 0) await client.query(statements.join(";\n"));
  return taken;
}

/**
 * Returns the functions that the table does not have because another one has the name: one that pg-task did not create,
 * or that belongs to a role that the manager does not trust. Everyone who calls such a function runs it as themselves.
 */
export async function takenUserFunctions(client: Client, table: TaskTable): Promise<UserFunction[]> {
  const found = await readFunctions(client, table);
  return found.filter(({ isTaken }) => isTaken).map(({ wanted }) => wanted);
}

interface FoundFunction {
  readonly wanted: UserFunction;
  readonly comment: string | null;
  readonly isTaken: boolean;
}

async function readFunctions(client: Client, table: TaskTable): Promise<FoundFunction[]> {
  const wanted = userFunctions(table);
  const { rows } = await client.query<{ comment: string | null; trusted: boolean | null }>(
    `SELECT pg_catalog.obj_description(p.oid, 'pg_proc') AS comment, CASE WHEN p.oid IS NOT NULL THEN ${isTrustedOwner("p.proowner", "$2")} END AS trusted
     FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS w(signature, place)
     LEFT JOIN pg_catalog.pg_proc AS p ON p.oid = pg_catalog.to_regprocedure(w.signature) ORDER BY w.place`,
    [wanted.map(({ signature }) => signature), table.qualified],
  );
  return wanted.map((each, place) => {
    const { comment = null, trusted = null } = rows[place] ?? {};
    const isOurs = trusted === true && comment?.startsWith(each.comment) === true;
    return { wanted: each, comment, isTaken: trusted !== null && !isOurs };
  });
}
