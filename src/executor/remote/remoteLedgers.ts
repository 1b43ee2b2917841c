import { PgTaskError } from "../../shared/errors.js";
import type { ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { ledgerCleaning, ledgerObstacleMs } from "../tuning.js";
import type { ForwardingLog } from "../forwardingLog.js";
import type { RemoteConnection } from "./connectRemote.js";
import {
  createLedger,
  deleteEntries,
  readLedgerState,
  readOldEntries,
  type LedgerState,
  type RunLedger,
} from "./remoteLedger.sql.js";

interface CleaningContext {
  readonly remote: ProtocolConnection;
  readonly local: ProtocolConnection;
  readonly schema: string;
  readonly table: string;
}

/** What an executor knows about ledgers of remote servers. */
export class RemoteLedgers {
  readonly #log: ForwardingLog;
  readonly #known = new Map<string, { readonly state: LedgerState; readonly until: number }>();
  readonly #reported = new Set<string>();
  readonly #used = new Map<string, { runs: number; cleanedAt: number }>();

  constructor(log: ForwardingLog) {
    this.#log = log;
  }

  /**
   * Returns the ledger of a session's role, and creates it if there is none. Null if that is impossible. What is known
   * about a running server is not asked again, because its catalogs would have to be read for each connection.
   *
   * @param task.server for the log
   */
  async open(
    { wire, process, known }: Pick<RemoteConnection, "wire" | "process" | "known">,
    task: { readonly id: string; readonly server: string; readonly login: string; readonly home: string },
  ): Promise<RunLedger | null> {
    const { address, host, port } = process;
    const key = [known.serverStartedAt, known.obstacle, address ?? host, port, task.login].join(" ");
    let found = this.#known.get(key);
    if (found === undefined || found.until < performance.now()) {
      const state = await readLedgerState(wire, known.obstacle);
      const opened = state.kind === "creatable" ? await create(wire, state.table) : state;
      found = { state: opened, until: opened.kind === "found" ? Infinity : performance.now() + ledgerObstacleMs };
      this.#known.set(key, found);
    }
    const { state } = found;
    if (state.kind === "found") return { ...state.ledger, home: task.home };
    if (state.kind === "impossible") this.#report(task, state.reason);
    return null;
  }

  /** Asks again where the ledgers are, because one was dropped. */
  forget(): void {
    this.#known.clear();
  }

  /**
   * Deletes entries of runs that are over: their tasks have no owner any more. Called after a run that may have added
   * one, and does this only now and then. A failure does no harm, because the next run tries it again.
   */
  async clean(ledger: RunLedger, context: CleaningContext): Promise<void> {
    const now = performance.now();
    const { runs, cleanedAt } = this.#used.get(ledger.key) ?? { runs: 0, cleanedAt: -Infinity };
    const isDue = runs + 1 >= ledgerCleaning.runs || now - cleanedAt >= ledgerCleaning.ms;
    this.#used.set(ledger.key, isDue ? { runs: 0, cleanedAt: now } : { runs: runs + 1, cleanedAt });
    if (!isDue) return;
    try {
      await deleteAcknowledged(ledger, context);
    } catch (error) {
      if (!(error instanceof PgTaskError)) throw error;
    }
  }

  #report({ id, server }: { readonly id: string; readonly server: string }, reason: string): void {
    const key = `${server} ${reason}`;
    if (this.#reported.has(key)) return;
    this.#reported.add(key);
    this.#log.warn({ id, server, reason }, "no ledger on the server of a remote task, tasks run there at least once");
  }
}

/** Another session may create it at the same time. */
async function create(wire: ProtocolConnection, table: string): Promise<LedgerState> {
  const ledger = { table, key: crypto.randomUUID() };
  const error = await createLedger(wire, ledger);
  if (error === null) return { kind: "found", ledger };
  const state = await readLedgerState(wire, null);
  return state.kind === "found" ? state : { kind: "impossible", reason: error.message };
}

/** The entries are read first: a run that begins later has none of them. */
async function deleteAcknowledged(ledger: RunLedger, context: CleaningContext): Promise<void> {
  const { remote, local, schema, table } = context;
  const old = await readOldEntries(remote, ledger);
  if (old.ids.length === 0) return;
  const { rows, error } = await local.query(
    `SELECT t.id FROM ${identifier(schema)}.${identifier(table)} AS t ` +
      `WHERE t.id OPERATOR(pg_catalog.=) ANY ('{${old.ids.join()}}'::pg_catalog.int8[]) AND t.owner IS NOT NULL`,
  );
  if (error !== null) return;
  const claimed = new Set(rows.map(([id]) => id));
  await deleteEntries(remote, ledger, { ...old, ids: old.ids.filter((id) => !claimed.has(id)) });
}
