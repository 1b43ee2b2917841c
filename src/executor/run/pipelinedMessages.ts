import type { ExecutorParameters, Run } from "../../shared/ipc/messages.js";
import { literal } from "../../shared/postgres/quoting.js";
import { applicationName, smallerTimeoutMs, statementTimeoutMs } from "./sessionSql.js";
import {
  encodeCall,
  encodeCommand,
  flush,
  type Block,
} from "../../shared/postgres/protocol/messages.js";

/** What every session has set when it runs nothing, by name. */
export type Standing = ReadonlyMap<string, string>;

/** The settings that a run finds beside its id. */
const settingNames = [
  "application_name",
  "pg_task.schema",
  "pg_task.table",
  "pg_task.group",
] as const;

/** Reads the standing settings and where the functions are: one row, for `toStanding` and `toFunctions`. */
export function standingSql({
  finish,
  reset,
  ledgers,
}: Pick<ExecutorParameters, "finish" | "reset" | "ledgers">): string {
  const settings = settingNames.map((name) => `pg_catalog.current_setting('${name}', true)`);
  const functions = [
    `${finish}(pg_catalog.int8, pg_catalog.int8, pg_catalog.text, pg_catalog.int4)`,
    `${reset}(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.int4)`,
  ].map((name) => `${literal(name)}::pg_catalog.regprocedure::pg_catalog.oid`);
  // A session does not begin without them.
  const tables = ledgers.map((name) => `${literal(name)}::pg_catalog.regclass`);
  return `SELECT ${[...settings, ...functions, ...tables].join(", ")}`;
}

export function toStanding(values: readonly (string | null)[]): Standing {
  return new Map(settingNames.map((name, index) => [name, values[index] ?? ""]));
}

/** The functions that are called around a run, by their numbers. */
export interface Functions {
  readonly finish: number;
  readonly reset: number;
}

export function toFunctions(values: readonly (string | null)[]): Functions {
  const [finish, reset] = values.slice(settingNames.length).map(Number);
  return { finish: finish ?? 0, reset: reset ?? 0 };
}

const beginCommand = encodeCommand("BEGIN");
const commit = encodeCommand("COMMIT");
const commitUnflushed = encodeCommand("SET LOCAL synchronous_commit = off");
/** What finish does for those with a proof: later it would not come before the end of the next. */
const unlisten = encodeCommand("UNLISTEN *");
/** In a transaction it is the time of its BEGIN; no name in it could be a task's to choose. */
const startClock = "SELECT CURRENT_TIMESTAMP";
const plainStart = encodeCommand(startClock);

/** Begins a transaction. */
export const begin: Block = block([beginCommand]);

/** How a transaction is committed. */
export interface Ends {
  /** It is the last for now. */
  readonly last: Block;
  /** Right behind it begins that of the next, without a message more. */
  readonly chained: Block;
}

/** Of one whose proof has been entered. */
export const provenEnds: Ends = ends([]);

/** Of one without a proof; that waits for no flush, since the one of the row's DONE covers it. */
export const unprovenEnds: Ends = ends([unlisten, commitUnflushed]);

function ends(before: readonly Buffer[]): Ends {
  return {
    last: block([...before, commit]),
    chained: block([...before, encodeCommand("COMMIT AND CHAIN")]),
  };
}

/** What of a group's settings is not as in a new session. */
interface GroupSettings {
  /** For the function that makes the session as new: group and name, or neither. */
  readonly values: readonly [string, string] | readonly [null, null];
  /** For settings that it cannot be told. */
  readonly commands: readonly Buffer[];
}

/**
 * The messages around an input that is sent whole. They are of the extended protocol, in which the
 * server answers nothing before it is asked to and skips everything behind what fails; and function
 * calls, for which it plans nothing.
 */
export class PipelinedMessages {
  /** Makes the session as new; its one value is the stop. */
  readonly reset: Block;
  /** The same in a transaction that has begun. */
  readonly chainedReset: Block;
  /** The session's own statement_timeout, in ms; 0 is none. */
  readonly ownTimeoutMs: number;
  readonly #table: Pick<ExecutorParameters, "schema" | "table">;
  readonly #standing: Standing;
  readonly #functions: Functions;
  readonly #owner: string;
  #group: string | null = null;
  #groupSettings: GroupSettings = { values: [null, null], commands: [] };

  constructor(
    parameters: Pick<ExecutorParameters, "schema" | "table" | "reset">,
    session: {
      readonly owner: string;
      readonly standing: Standing;
      readonly functions: Functions;
      readonly ownTimeoutMs: number;
    },
  ) {
    this.ownTimeoutMs = session.ownTimeoutMs;
    this.#table = parameters;
    this.#standing = session.standing;
    this.#functions = session.functions;
    this.#owner = session.owner;
    const reset = encodeCommand(`SELECT ${parameters.reset}()`);
    this.reset = block([beginCommand, reset, commit]);
    this.chainedReset = block([reset, commit]);
  }

  /**
   * Up to the input; its one value is the start. Without a transaction the settings have one of their own.
   *
   * @param lock second key of the lock that it is to take, null for none.
   */
  opening(
    run: Pick<Run, "id" | "group" | "timeoutMs">,
    transaction: boolean,
    lock: number | null,
  ): Block {
    const { id, group, timeoutMs } = run;
    const start = lock === null ? plainStart : encodeCommand(`${startClock}, ${lockSql(lock)}`);
    const settings = this.#differing(group).map(setting);
    settings.push(encodeCommand(`SET pg_task.id = '${id}'`));
    if (timeoutMs > 0) {
      const smaller = smallerTimeoutMs(timeoutMs, this.ownTimeoutMs);
      settings.push(encodeCommand(`SET ${timeoutSetting(smaller)}`));
    }
    const end = transaction ? [] : [commit];
    return block([beginCommand, start, ...settings, ...end], flush);
  }

  /**
   * The opening of a run right behind another whose reset it is as well, in a transaction that has begun
   * when that of the other ended: a call, whose value is the stop of that and the start of this. It fails
   * when nobody holds the permit.
   *
   * @param lock second key of the lock that it is to take.
   */
  following({ id, group }: Pick<Run, "id" | "group">, lock: number, permit: number): Buffer {
    const values = [id, ...this.#settingsOf(group).values, String(lock), String(permit)];
    return encodeCall(this.#functions.reset, values);
  }

  /** What `following` could not tell of the run, null for nothing. */
  settings({ group }: Pick<Run, "group">): Block | null {
    const { commands } = this.#settingsOf(group);
    return commands.length === 0 ? null : block(commands, flush);
  }

  /** Enters the proof: a call, whose value says whether it was entered, as `finishSql` does. */
  proof({ id, take, ledger }: Pick<Run, "id" | "take" | "ledger">): Buffer {
    return encodeCall(this.#functions.finish, [id, take, this.#owner, String(ledger)]);
  }

  #settingsOf(group: string): GroupSettings {
    if (this.#group === group) return this.#groupSettings;
    const differing = this.#differing(group);
    const told = new Map(differing);
    const values = [told.get("pg_task.group"), told.get("application_name")] as const;
    const [its, name] = values;
    // The task before may have changed the encoding in which text is told.
    const tellable =
      differing.length === 2 && isAscii(group) && isAscii(applicationName(this.#table));
    this.#group = group;
    this.#groupSettings =
      tellable && its !== undefined && name !== undefined
        ? { values: [its, name], commands: [] }
        : { values: [null, null], commands: differing.map(setting) };
    return this.#groupSettings;
  }

  /** Names and values of those settings that a new session has otherwise. */
  #differing(group: string): (readonly [string, string])[] {
    const { schema, table } = this.#table;
    const values = [`${applicationName(this.#table)} ${group}`, schema, table, group];
    return settingNames.flatMap((name, index) => {
      const value = values[index] ?? "";
      return this.#standing.get(name) === value ? [] : [[name, value] as const];
    });
  }
}

/** Takes the lock of a run of this session until its transaction ends. */
const lockSql = (lock: number): string =>
  `pg_catalog.pg_try_advisory_xact_lock(pg_catalog.pg_backend_pid(), ${lock})`;

function setting([name, value]: readonly [string, string]): Buffer {
  // The last part of a name may be a reserved word.
  const quoted = name.replace(/[^.]+$/, '"$&"');
  return encodeCommand(`SET ${quoted} = ${literal(value)}`);
}

const isAscii = (text: string): boolean => /^[\x20-\x7e]*$/.test(text);

const timeoutSetting = (timeoutMs: number): string =>
  `statement_timeout = ${statementTimeoutMs(timeoutMs)}`;

function block(commands: readonly Buffer[], end: Buffer = Buffer.alloc(0)): Block {
  return { bytes: Buffer.concat([...commands, end]), commands: commands.length };
}
