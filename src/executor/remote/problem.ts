/** Why a task cannot run on its remote server, as its error is to say. Holds no secret. */
export class RemoteProblem extends Error {
  readonly detail: string | undefined;
  readonly hint: string | undefined;

  constructor(message: string, more: { readonly detail?: string; readonly hint?: string } = {}) {
    super(message);
    this.detail = more.detail;
    this.hint = more.hint;
  }
}

/** Who is no superuser has to show the server who he is, with a password of his own. */
export class PasswordRequired extends RemoteProblem {
  constructor(more: { readonly detail: string; readonly hint?: string }) {
    super("password is required", more);
  }
}
