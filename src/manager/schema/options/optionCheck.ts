import { identifier } from "../../../shared/postgres/quoting.js";

/** How the options trigger handles some columns. */
export interface OptionCheck {
  /** Columns whose change in an UPDATE fires the trigger. */
  readonly watched: readonly string[];
  /** SQL condition on NEW that is true if the row has to be checked. */
  readonly isUsed: string;
  /** SQL condition on OLD, or on OLD and NEW, that is true if a changed row has to be checked although `isUsed` is false. */
  readonly wasUsed?: string;
  /** PL/pgSQL declarations of the variables that `body` uses. */
  readonly variables?: readonly string[];
  /** PL/pgSQL statements that check NEW and complete it. */
  readonly body: string;
}

/** SQL condition that is true if one of these columns of NEW is not null. */
export const isAnySet = (columns: readonly string[]): string =>
  `num_nonnulls(${columns.map((column) => `NEW.${identifier(column)}`).join(", ")}) > 0`;

/**
 * PL/pgSQL that refuses the row.
 *
 * @param message a literal, in which a percent sign is written twice
 */
export const refuse = (message: string, { hint }: { readonly hint?: string } = {}): string =>
  `RAISE EXCEPTION '${message}' USING ERRCODE = 'invalid_parameter_value'${hint === undefined ? "" : `, HINT = '${hint}'`};`;
