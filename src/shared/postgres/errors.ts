/** Why a connection cannot be had, in libpq's words where it has some. Holds no secret. */
export class ConnectionProblem extends Error {
  readonly detail: string | undefined;
  readonly hint: string | undefined;

  constructor(message: string, more: { readonly detail?: string; readonly hint?: string } = {}) {
    super(message);
    this.detail = more.detail;
    this.hint = more.hint;
  }
}

/** Who is no superuser has to show the server who he is, with a password of his own. */
export class PasswordRequired extends ConnectionProblem {
  constructor(more: { readonly detail: string; readonly hint?: string }) {
    super("password is required", more);
  }
}

/** The server asks for a password, and there is none. */
export class NoPassword extends ConnectionProblem {
  constructor() {
    super("fe_sendauth: no password supplied");
  }
}

/** The server's side of TLS could not be agreed upon; without TLS it may do. */
export class TlsProblem extends ConnectionProblem {}
