import type { ExecutorParameters } from "../../shared/ipc/executorMessages.js";
import type { Run } from "../../shared/ipc/run.js";
import { busySessionName, idleSessionName } from "../../shared/postgres/applicationNames.js";
import { literal } from "../../shared/postgres/quoting.js";
import { setRoleSql } from "../session/roleSession.sql.js";
import { effectiveTimeoutMs, statementTimeoutMs } from "./runSettings.sql.js";
import { encodeCall, encodeCommand, flush, type Block } from "../../shared/postgres/protocol/encode.js";

const settingNames = ["application_name", "pg_task.schema", "pg_task.table", "pg_task.group"] as const;

export function initialStateSql({
  finishFunction: finish,
  resetFunction: reset,
  ledgers,
}: Pick<ExecutorParameters, "finishFunction" | "resetFunction" | "ledgers">): string {
  const settings = settingNames.map((name) => `pg_catalog.current_setting('${name}', true)`);
  const functions = [
    `${finish}(pg_catalog.int8, pg_catalog.int8, pg_catalog.text, pg_catalog.int4)`,
    `${reset}(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.int4)`,
  ].map((name) => `${literal(name)}::pg_catalog.regprocedure::pg_catalog.oid`);
  // The query fails if a ledger is missing, so that no session is opened without its ledgers.
  const tables = ledgers.map((name) => `${literal(name)}::pg_catalog.regclass`);
  return `SELECT ${[...settings, ...functions, ...tables].join(", ")}`;
}

const beginCommand = encodeCommand("BEGIN");
const commit = encodeCommand("COMMIT");
const commitUnflushed = encodeCommand("SET LOCAL synchronous_commit = off");
/** Needed only without a proof, because finish does the same. Later in the pipeline, it would take effect too late. */
const unlisten = encodeCommand("UNLISTEN *");
/** Contains no name that a task could redefine. */
const startClock = "SELECT CURRENT_TIMESTAMP";
const plainStart = encodeCommand(startClock);

export const begin: Block = block([beginCommand]);

export const commitWithProof = commitMessages([]);
/** Does not wait for the WAL flush, because the flush for the row's DONE covers this commit too. */
export const commitWithoutProof = commitMessages([unlisten, commitUnflushed]);

/** `chained` also begins the next transaction, which saves a message. */
function commitMessages(before: readonly Buffer[]): { readonly last: Block; readonly chained: Block } {
  return {
    last: block([...before, commit]),
    chained: block([...before, encodeCommand("COMMIT AND CHAIN")]),
  };
}

interface GroupSettings {
  readonly arguments: readonly [string, string] | readonly [null, null];
  readonly commands: readonly Buffer[];
}

/**
 * The messages around the input of a pipelined attempt. In the extended protocol, the server answers only when it is
 * asked to, and skips everything behind a failure. Function calls need no planning.
 */
export class PipelinedMessages {
  /** Its one value is the time by the server's clock at the end of the run. */
  readonly reset: Block;
  readonly chainedReset: Block;
  readonly sessionTimeoutMs: number;
  readonly #table: Pick<ExecutorParameters, "schema" | "table">;
  readonly #initialSettings: ReadonlyMap<string, string>;
  readonly #finishOid: number;
  readonly #resetOid: number;
  readonly #owner: string;
  /** Becomes the role whose tasks the session runs. The reset ends that. */
  readonly #becomeRole: readonly Buffer[];
  #group: string | null = null;
  #groupSettings: GroupSettings = { arguments: [null, null], commands: [] };

  constructor(
    parameters: Pick<ExecutorParameters, "schema" | "table" | "resetFunction">,
    session: {
      readonly owner: string;
      readonly role?: string | null;
      /** The row that `initialStateSql` yields. */
      readonly initialState: readonly (string | null)[];
      readonly ownTimeoutMs: number;
    },
  ) {
    this.sessionTimeoutMs = session.ownTimeoutMs;
    this.#table = parameters;
    const { initialState } = session;
    this.#initialSettings = new Map(settingNames.map((name, index) => [name, initialState[index] ?? ""]));
    [this.#finishOid = 0, this.#resetOid = 0] = initialState.slice(settingNames.length).map(Number);
    this.#owner = session.owner;
    this.#becomeRole = (session.role ?? null) === null ? [] : [encodeCommand(setRoleSql(session.role ?? ""))];
    const reset = encodeCommand(`SELECT ${parameters.resetFunction}()`);
    this.reset = block([beginCommand, reset, commit]);
    this.chainedReset = block([reset, commit]);
  }

  /**
   * Builds everything that precedes the input. Its one value is the time by the server's clock at the start.
   *
   * @param transaction whether to leave the transaction open for the input
   * @param lock second key of the advisory lock to take
   */
  opening(
    run: Pick<Run, "id" | "args" | "results" | "group" | "timeoutMs">,
    transaction: boolean,
    lock: number | null,
  ): Block {
    const start = lock === null ? plainStart : encodeCommand(`${startClock}, ${lockSql(lock)}`);
    const settings = this.#changedSettings(run.group).map(encodeSetting);
    const id = encodeCommand(`SET pg_task.id = '${run.id}'`);
    const own = this.#ownSettings(run, transaction);
    const end = transaction ? [] : [commit];
    return block([beginCommand, start, ...this.#becomeRole, ...settings, id, ...own, ...end], flush);
  }

  /**
   * Builds the opening of a run that directly follows another one: a function call in the transaction that the other's
   * COMMIT AND CHAIN began, which also resets the session. Its value is the stop time of the other run and the start
   * time of this one. It fails if the lock of the pipeline permit is not held.
   */
  chainedOpening({ id, group }: Pick<Run, "id" | "group">, lock: number, permit: number): Buffer {
    const values = [id, ...this.#settingsOf(group).arguments, String(lock), String(permit)];
    return encodeCall(this.#resetOid, values);
  }

  settings(run: Pick<Run, "args" | "results" | "group" | "timeoutMs">): Block | null {
    const commands = [...this.#settingsOf(run.group).commands, ...this.#ownSettings(run, true)];
    return commands.length === 0 ? null : block(commands, flush);
  }

  /** Writes the proof, as `localProof` does. Its value says whether the proof was written. */
  finishCall({ id, claimedAt, ledger }: Pick<Run, "id" | "claimedAt" | "ledger">): Buffer {
    return encodeCall(this.#finishOid, [id, claimedAt, this.#owner, String(ledger)]);
  }

  /** In a transaction, the timeout applies until its end, and no reset has to remove it. */
  #ownSettings(
    { args, results, timeoutMs }: Pick<Run, "args" | "results" | "timeoutMs">,
    transaction: boolean,
  ): Buffer[] {
    const own: Buffer[] = [];
    if (args !== null) own.push(encodeSetting(["pg_task.args", args]));
    if (results !== null) own.push(encodeSetting(["pg_task.results", results]));
    if (timeoutMs > 0) {
      const limitMs = statementTimeoutMs(effectiveTimeoutMs(timeoutMs, this.sessionTimeoutMs));
      own.push(encodeCommand(`SET ${transaction ? "LOCAL " : ""}statement_timeout = ${limitMs}`));
    }
    return own;
  }

  #settingsOf(group: string): GroupSettings {
    if (this.#group === group) return this.#groupSettings;
    const differing = this.#changedSettings(group);
    const values = new Map(differing);
    const groupValue = values.get("pg_task.group");
    const name = values.get("application_name");
    // The previous task may have changed client_encoding, which also applies to arguments. Therefore only ASCII text is
    // passed as an argument.
    const canBeArguments = differing.length === 2 && isAscii(group) && isAscii(idleSessionName(this.#table));
    this.#group = group;
    this.#groupSettings =
      canBeArguments && groupValue !== undefined && name !== undefined
        ? { arguments: [groupValue, name], commands: this.#becomeRole }
        : { arguments: [null, null], commands: [...this.#becomeRole, ...differing.map(encodeSetting)] };
    return this.#groupSettings;
  }

  #changedSettings(group: string): (readonly [string, string])[] {
    const { schema, table } = this.#table;
    const values = [busySessionName(this.#table, group), schema, table, group];
    return settingNames.flatMap((name, index) => {
      const value = values[index] ?? "";
      return this.#initialSettings.get(name) === value ? [] : [[name, value] as const];
    });
  }
}

/** Takes a run's advisory lock, until the end of its transaction. */
const lockSql = (lock: number): string => `pg_catalog.pg_try_advisory_xact_lock(pg_catalog.pg_backend_pid(), ${lock})`;

function encodeSetting([name, value]: readonly [string, string]): Buffer {
  // The last part of a name may be a reserved word, and is therefore quoted.
  const quoted = name.replace(/[^.]+$/, '"$&"');
  return encodeCommand(`SET ${quoted} = ${literal(value)}`);
}

const isAscii = (text: string): boolean => /^[\x20-\x7e]*$/.test(text);

function block(commands: readonly Buffer[], end: Buffer = Buffer.alloc(0)): Block {
  return { bytes: Buffer.concat([...commands, end]), commands: commands.length };
}
