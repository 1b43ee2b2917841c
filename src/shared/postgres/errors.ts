import { connectionNotEstablished } from "./sqlStates.js";

/** A wrong connection string or variable. The message is libpq's if it has one, and contains no secret. */
export class ConnectionStringError extends Error {}

export class ConnectionProblem extends Error {
  readonly detail: string | undefined;
  readonly hint: string | undefined;
  readonly sqlstate: string;

  constructor(
    message: string,
    fields: {
      readonly detail?: string | undefined;
      readonly hint?: string | undefined;
      readonly sqlstate?: string | undefined;
      readonly cause?: unknown;
    } = {},
  ) {
    super(message, fields.cause === undefined ? {} : { cause: fields.cause });
    this.detail = fields.detail;
    this.hint = fields.hint;
    this.sqlstate = fields.sqlstate ?? connectionNotEstablished;
  }
}

export class PasswordRequired extends ConnectionProblem {
  constructor(fields: { readonly detail: string; readonly hint?: string }) {
    super("password is required", fields);
  }
}

export class MissingPassword extends ConnectionProblem {
  constructor() {
    super("fe_sendauth: no password supplied");
  }
}

/** TLS could not be negotiated. Connecting can still succeed without it. */
export class TlsProblem extends ConnectionProblem {}
