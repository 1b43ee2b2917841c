/** Due tasks that nothing keeps from starting and that are not taken all the same. */
export interface Stall {
  /** When the first of them was first seen to wait: ISO 8601, by the manager's process. */
  readonly since: string;
  /** Ids of some: of each group the one that comes first. */
  readonly tasks: readonly string[];
}
