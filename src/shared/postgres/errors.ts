import { connectionNotEstablished } from "./sqlStates.js";

/**
 * A connection string or environment variable that cannot be used. The message is the same as libpq's if libpq has one,
 * and contains no secret.
 */
export class ConnectionStringError extends Error {}

/** Why connecting failed. The message is the same as libpq's if libpq has one, and contains no secret. */
export class ConnectionProblem extends Error {
  readonly detail: string | undefined;
  readonly hint: string | undefined;
  /** The SQLSTATE with which the server refused the connection, or that of a connection that cannot be established. */
  readonly sqlstate: string;

  constructor(
    message: string,
    fields: {
      readonly detail?: string;
      readonly hint?: string;
      readonly sqlstate?: string;
      readonly cause?: unknown;
    } = {},
  ) {
    super(message, fields.cause === undefined ? {} : { cause: fields.cause });
    this.detail = fields.detail;
    this.hint = fields.hint;
    this.sqlstate = fields.sqlstate ?? connectionNotEstablished;
  }
}

/** A user who is not a superuser must authenticate with a password from the connection string. */
export class PasswordRequired extends ConnectionProblem {
  constructor(fields: { readonly detail: string; readonly hint?: string }) {
    super("password is required", fields);
  }
}

/** The server asks for a password, but none was given. */
export class MissingPassword extends ConnectionProblem {
  constructor() {
    super("fe_sendauth: no password supplied");
  }
}

/** TLS could not be negotiated. The connection can still succeed without TLS. */
export class TlsProblem extends ConnectionProblem {}
