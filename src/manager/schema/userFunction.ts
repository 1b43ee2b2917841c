/** A function of a table that users call, and that pg-task itself does not need. */
export interface UserFunction {
  /** What users do with it, in the plural. */
  readonly purpose: string;
  /** The comment of the function begins with this text. A digest of the statement that created it follows. */
  readonly comment: string;
  /** Name and types of the parameters, quoted for use in statements. */
  readonly signature: string;
  /** The statement that creates or replaces the function. */
  readonly create: string;
}
