import { errorMessage, PgTaskError } from "../shared/errors.js";
import { sqlState } from "../shared/postgres/client.js";
import type { TaskFilter } from "../tasks/types.js";

/** A text that is no time, one that is out of range, an offset that is out of range, and an unknown time zone. */
const invalidTime = new Set(["22007", "22008", "22009", "22023"]);

/**
 * If the server does not say which of the two times it cannot read, both options are named. Returns any other error
 * unchanged.
 */
export function nameInvalidTime(error: unknown, { since, until }: TaskFilter): unknown {
  const state = sqlState(error);
  if (state === null || !invalidTime.has(state)) return error;
  const given = Object.entries({ since, until }).flatMap(([name, value]) =>
    typeof value === "string" ? [{ name, value }] : [],
  );
  const message = errorMessage(error);
  const quoted = given.filter(({ value }) => message.includes(JSON.stringify(value)));
  const names = (quoted.length > 0 ? quoted : given).map(({ name }) => name);
  if (names.length === 0) return error;
  return new PgTaskError("USAGE", `invalid ${names.join(" or ")}: ${message} (SQLSTATE ${state})`, {
    cause: error,
    sqlState: state,
  });
}
