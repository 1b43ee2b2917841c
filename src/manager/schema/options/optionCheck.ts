import { identifier } from "../../../shared/postgres/quoting.js";

export interface OptionCheck {
  /** Columns whose change in an UPDATE fires the trigger. */
  readonly watched: readonly string[];
  /** SQL condition on NEW that is true if the row has to be checked. */
  readonly isUsed: string;
  /** SQL condition on OLD and NEW under which a changed row has to be checked although `isUsed` is false. */
  readonly wasUsed?: string;
  readonly variables?: readonly string[];
  /** PL/pgSQL statements that check NEW and complete it. */
  readonly body: string;
}

export const isAnySet = (columns: readonly string[]): string =>
  `num_nonnulls(${columns.map((column) => `NEW.${identifier(column)}`).join(", ")}) > 0`;

/** PL/pgSQL that refuses the row. In the message, `%` stands for the value, which is SQL. */
export const refuse = (message: string, more: { readonly value?: string; readonly hint?: string } = {}): string =>
  `RAISE EXCEPTION '${message}'${more.value === undefined ? "" : `, ${more.value}`} USING ERRCODE = 'invalid_parameter_value'${more.hint === undefined ? "" : `, HINT = '${more.hint}'`};`;

/** Notifies the manager of a change of the table, unless `pg_task.notify` is off, as the trigger that wakes it does. */
export const notifyManager = `PERFORM pg_notify(concat('pg_task_', coalesce(pg_partition_root(TG_RELID)::oid, TG_RELID)), '')
      WHERE lower(coalesce(current_setting('pg_task.notify', true), '')) <> ALL (ARRAY['off', 'false', 'no', '0'])`;
