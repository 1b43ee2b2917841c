import type { RemoteProof } from "../../shared/ipc/run.js";
import type { ProtocolConnection, Answer } from "../../shared/postgres/protocol/connection.js";
import { literal } from "../../shared/postgres/quoting.js";
import { createProof, type Proof } from "../run/proof.sql.js";

/**
 * A table of a remote server in which the runs of one login prove that their effects were committed. It belongs to that
 * login, so that no other role can change it or make it run anything.
 */
export interface RemoteLedger {
  /** Quoted and schema-qualified. */
  readonly table: string;
  /** Written into the table's comment, so that a replica of the server is known by it. */
  readonly key: string;
}

/** A remote ledger, and the id of the home by which it tells the runs of this task table from those of others. */
export interface RunLedger extends RemoteLedger {
  readonly home: string;
}

/** Whether the role of a remote session has a ledger there. */
export type LedgerState =
  | { readonly kind: "found"; readonly ledger: RemoteLedger }
  /** `table` is where it can be created. */
  | { readonly kind: "creatable"; readonly table: string }
  | { readonly kind: "impossible"; readonly reason: string };

const comment = "pg-task ledger of remote tasks ";
const keyLength = 36;
/** How long a fence waits for the commit of the run that it fences, in ms. */
const fenceWaitMs = 5_000;

/** The server truncates it to the length of a name. */
const ledgerName = "('pg_task_ledger_' OPERATOR(pg_catalog.||) current_user)::pg_catalog.name";

/** SQL expression: key and table of the role's ledger, separated by a space. Null if there is none. */
const findLedgerSql = `(SELECT pg_catalog."right"(l.comment, ${keyLength}) OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) l.name
FROM (SELECT c.oid, pg_catalog.obj_description(c.oid, 'pg_class') AS comment, pg_catalog.format('%I.%I', n.nspname, c.relname) AS name
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
  WHERE c.relname OPERATOR(pg_catalog.=) ${ledgerName} AND c.relkind OPERATOR(pg_catalog.=) 'r' AND c.relpersistence OPERATOR(pg_catalog.=) 'p'
    AND c.relowner OPERATOR(pg_catalog.=) (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) current_user)
) AS l WHERE l.comment OPERATOR(pg_catalog.~) '^${comment}[-0-9a-f]{${keyLength}}$' ORDER BY l.oid LIMIT 1)`;

/** SQL expression: the name of a ledger in the first schema of the search_path in which the role may create it, or null. */
const newLedgerSql = `(SELECT pg_catalog.format('%I.%I', n.nspname, ${ledgerName})
FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS s(name, place)
JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) s.name
WHERE pg_catalog.has_schema_privilege(n.oid, 'CREATE') AND n.nspname OPERATOR(pg_catalog.!~) '^pg_' ORDER BY s.place LIMIT 1)`;

export const noSchema = "the role may create a table in no schema of its search_path";

const impossible = (reason: string): LedgerState => ({ kind: "impossible", reason });

/** @param obstacle why the session can write no proofs, or null */
export async function readLedgerState(wire: ProtocolConnection, obstacle: string | null): Promise<LedgerState> {
  if (obstacle !== null) return impossible(obstacle);
  const { rows, error } = await wire.query(`SELECT ${findLedgerSql}, ${newLedgerSql}`);
  if (error !== null) return impossible(error.message);
  const [found = null, creatable = null] = rows[0] ?? [];
  if (found !== null) {
    return { kind: "found", ledger: { key: found.slice(0, keyLength), table: found.slice(keyLength + 1) } };
  }
  return creatable === null ? impossible(noSchema) : { kind: "creatable", table: creatable };
}

/** Returns the server's error if it does not create the table. */
export async function createLedger(wire: ProtocolConnection, { table, key }: RemoteLedger): Promise<Answer["error"]> {
  const { error } = await transact(
    wire,
    `CREATE TABLE ${table} (home pg_catalog.uuid, id pg_catalog.int8, run pg_catalog.int8, done pg_catalog.bool NOT NULL,
  at pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(), PRIMARY KEY (home, id, run));
COMMENT ON TABLE ${table} IS ${literal(comment + key)}`,
  );
  return error;
}

/**
 * The proof in a remote ledger. It fails if the run has been fenced. A read-only transaction needs none, but would refuse
 * the INSERT: an input that may begin one gets a DO block, which takes longer.
 */
export const remoteProof = ({ table, home }: RunLedger): Proof =>
  createProof(table, ({ id, claimedAt, input }) => {
    const columns = `INSERT INTO ${table} (home, id, run, done)`;
    const values = `${literal(home)}::pg_catalog.uuid, ${id}, ${claimedAt}, true`;
    const isWriting = "pg_catalog.txid_current_if_assigned() IS NOT NULL";
    return /read[\s_]+only/i.test(input)
      ? `DO ${literal(`BEGIN IF ${isWriting} THEN ${columns} VALUES (${values}); END IF; END`)}; SELECT ${isWriting}`
      : `${columns} SELECT ${values} WHERE ${isWriting} RETURNING done`;
  });

/**
 * Fences a run: waits for its commit if that is in progress, and otherwise takes the place of its proof, so that it can
 * no longer commit. Writes in any case, so that the answer is as durable as a commit. Returns whether the run was
 * committed, or null if the server did not say.
 */
export async function fence(
  wire: ProtocolConnection,
  { table }: RemoteLedger,
  { home, id, claimedAt }: RemoteProof,
): Promise<boolean | null> {
  const { rows } = await transact(
    wire,
    `INSERT INTO ${table} AS l (home, id, run, done) VALUES (${literal(home)}, ${id}, ${claimedAt}, false)
ON CONFLICT (home, id, run) DO UPDATE SET at = pg_catalog.clock_timestamp() RETURNING l.done`,
  );
  const [done = null] = rows[0] ?? [];
  return done === null ? null : done === "t";
}

async function transact(wire: ProtocolConnection, sql: string): Promise<Answer> {
  const answer = await wire.query(
    `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = ${fenceWaitMs}; SET LOCAL statement_timeout = 0; ${sql}; COMMIT`,
  );
  if (answer.status !== "I") await wire.query("ROLLBACK");
  // Without a commit, rows say nothing.
  return answer.error === null ? answer : { ...answer, rows: [] };
}

interface OldEntries {
  readonly ids: readonly string[];
  readonly before: string;
}

const maxOldEntries = 1_000;

/** Returns the ids of tasks with entries that are a minute old, by the server's clock. */
export async function readOldEntries(wire: ProtocolConnection, { table, home }: RunLedger): Promise<OldEntries> {
  const { rows } = await wire.query(
    `SELECT l.id, b.before FROM (SELECT pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '1 minute'::pg_catalog.interval AS before) AS b,
${table} AS l WHERE l.home OPERATOR(pg_catalog.=) ${literal(home)}::pg_catalog.uuid AND l.at OPERATOR(pg_catalog.<) b.before LIMIT ${maxOldEntries}`,
  );
  return { ids: rows.map(([id]) => id ?? ""), before: rows[0]?.[1] ?? "" };
}

/** A fence stays as long as there is a backend of the role that may be that of the fenced run. */
export async function deleteEntries(
  wire: ProtocolConnection,
  { table, home }: RunLedger,
  { ids, before }: OldEntries,
): Promise<void> {
  await wire.query(
    `DELETE FROM ${table} AS l WHERE l.home OPERATOR(pg_catalog.=) ${literal(home)}::pg_catalog.uuid
AND l.id OPERATOR(pg_catalog.=) ANY ('{${ids.join()}}'::pg_catalog.int8[]) AND l.at OPERATOR(pg_catalog.<) ${literal(before)}::pg_catalog.timestamptz
AND (l.done OR l.at OPERATOR(pg_catalog.<) (SELECT pg_catalog.min(a.backend_start) FROM pg_catalog.pg_stat_activity AS a
  JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) a.usesysid WHERE r.rolname OPERATOR(pg_catalog.=) session_user))`,
  );
}
