import { escapeLiteral } from "pg";
import type { ExecutorParameters, Run } from "../shared/messages.js";
import { applicationName, statementTimeoutMs } from "./sessionSql.js";
import {
  encodeBind,
  encodeCommand,
  encodeExecute,
  encodeParse,
  flush,
  type Block,
} from "./wireMessages.js";

/** What every session has set when it runs nothing, by name. */
export type Standing = ReadonlyMap<string, string>;

/** The settings that a run finds beside its id. */
const settingNames = [
  "application_name",
  "pg_task.schema",
  "pg_task.table",
  "pg_task.group",
] as const;

/** What a transaction is that says nothing of it. */
const transactionNames = [
  "default_transaction_isolation",
  "default_transaction_read_only",
  "default_transaction_deferrable",
] as const;

const standingNames = [...settingNames, ...transactionNames] as const;

/** Reads the standing settings: one row, in the order of their names. */
export const standingSql = `SELECT ${standingNames
  .map((name) => `pg_catalog.current_setting('${name}', true)`)
  .join(", ")}`;

export function toStanding(values: readonly (string | null)[]): Standing {
  return new Map(standingNames.map((name, index) => [name, values[index] ?? ""]));
}

const int8 = 20;
const int4 = 23;
const text = 25;

const beginCommand = encodeCommand("BEGIN");
const commit = encodeCommand("COMMIT");
const commitUnflushed = encodeCommand("SET LOCAL synchronous_commit = off");
/** In a transaction it is the time of its BEGIN; no name in it could be a task's to choose. */
const startClock = encodeCommand("SELECT CURRENT_TIMESTAMP");

const execute = encodeExecute();
/** Commits without a proof; that waits for no flush, since the one of the row's DONE covers it. */
const unproven: Block = block([commitUnflushed, commit]);

/** Begins a transaction. */
export const begin: Block = { bytes: beginCommand, commands: 1 };

/** Those messages that are the same for all sessions of one table. */
export class TableMessages {
  readonly parseFinish: Buffer;
  readonly parseReset: Buffer;
  readonly reset: Block;

  constructor({ finish, reset }: Pick<ExecutorParameters, "finish" | "reset">) {
    this.parseFinish = encodeParse(`SELECT ${finish}($1, $2, $3, $4)`, [int8, int8, text, int4]);
    this.parseReset = encodeParse(`SELECT ${reset}($1)`, [int8]);
    this.reset = block([beginCommand, encodeCommand(`SELECT ${reset}(NULL)`), commit]);
  }
}

/**
 * The messages around an input that is sent whole. They are of the extended protocol, in which the
 * server answers nothing before it is asked to and skips everything behind what fails.
 */
export class SessionMessages {
  readonly #table: Pick<ExecutorParameters, "schema" | "table">;
  readonly #standing: Standing;
  readonly #owner: string;
  readonly #messages: TableMessages;
  /** Begins a transaction as the session's would be when it is as new. */
  readonly #beginAsNew: Buffer;
  #group: string | null = null;
  #groupSettings: readonly Buffer[] = [];

  constructor(
    parameters: Pick<ExecutorParameters, "schema" | "table">,
    messages: TableMessages,
    session: { readonly owner: string; readonly standing: Standing },
  ) {
    this.#table = parameters;
    this.#standing = session.standing;
    this.#owner = session.owner;
    this.#messages = messages;
    this.#beginAsNew = encodeCommand(`BEGIN ${transactionModes(session.standing)}`);
  }

  /** Up to the input; its one value is the start. Without a transaction the settings have one of their own. */
  opening(run: Pick<Run, "id" | "group" | "timeoutMs">, transaction: boolean): Block {
    const { id, group, timeoutMs } = run;
    const settings = [...this.#settingsOf(group), encodeCommand(`SET pg_task.id = '${id}'`)];
    if (timeoutMs > 0) settings.push(encodeCommand(`SET ${timeoutSetting(timeoutMs)}`));
    const end = transaction ? [] : [commit];
    return block([beginCommand, startClock, ...settings, ...end], flush);
  }

  /**
   * The opening, with a transaction, of a run right behind another whose reset it is as well; its one
   * value is the stop of that and the start of this.
   */
  following({ id, group }: Pick<Run, "id" | "group">): Block {
    const settings = this.#settingsOf(group);
    const parts = [
      this.#beginAsNew,
      this.#messages.parseReset,
      encodeBind([id]),
      execute,
      ...settings,
    ];
    return { bytes: Buffer.concat([...parts, flush]), commands: 2 + settings.length };
  }

  /** Makes the session as new; its one value is the stop. */
  get reset(): Block {
    return this.#messages.reset;
  }

  /** Commits without a proof. */
  get end(): Block {
    return unproven;
  }

  /** Enters the proof and commits; its one value says whether it was entered, as `finishSql` does. */
  proof({ id, take, ledger }: Pick<Run, "id" | "take" | "ledger">): Block {
    const bind = encodeBind([id, take, this.#owner, String(ledger)]);
    const bytes = Buffer.concat([this.#messages.parseFinish, bind, execute, commit]);
    return { bytes, commands: 2 };
  }

  #settingsOf(group: string): readonly Buffer[] {
    if (this.#group === group) return this.#groupSettings;
    const { schema, table } = this.#table;
    const values = [`${applicationName(this.#table)} ${group}`, schema, table, group];
    this.#group = group;
    this.#groupSettings = settingNames.flatMap((name, index) => {
      const value = values[index] ?? "";
      if (this.#standing.get(name) === value) return [];
      // The last part of a name may be a reserved word.
      const quoted = name.replace(/[^.]+$/, '"$&"');
      return encodeCommand(`SET ${quoted} = ${escapeLiteral(value)}`);
    });
    return this.#groupSettings;
  }
}

function transactionModes(standing: Standing): string {
  const isolation = standing.get("default_transaction_isolation") ?? "";
  const readOnly = standing.get("default_transaction_read_only") === "on";
  const deferrable = standing.get("default_transaction_deferrable") === "on";
  return `ISOLATION LEVEL ${isolation}, READ ${readOnly ? "ONLY" : "WRITE"}, ${deferrable ? "" : "NOT "}DEFERRABLE`;
}

const timeoutSetting = (timeoutMs: number): string =>
  `statement_timeout = ${statementTimeoutMs(timeoutMs)}`;

function block(commands: readonly Buffer[], end: Buffer = Buffer.alloc(0)): Block {
  return { bytes: Buffer.concat([...commands, end]), commands: commands.length };
}
