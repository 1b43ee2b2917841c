/** Arguments of a peer's process, as JSON. */
export interface PeerArguments {
  readonly url: string;
  /** The peer's own options. */
  readonly setting: Readonly<Record<string, unknown>>;
  /** Size of the connection pool that the handlers use. */
  readonly pool: number;
}

/** The payload of a peer's job. */
export interface Payload {
  readonly n: number;
  readonly sql: string;
  /** If set, the job only reports when it starts, and does not execute its statement. */
  readonly mark?: true;
}

/** Tasks to add with the peer's own client. In the SQL expressions, `n` is the task's number. */
export interface Addition {
  readonly first: number;
  readonly last: number;
  readonly input: string;
  readonly group: string | null;
  readonly key: string | null;
}

export type ToPeer =
  | ({ readonly type: "add" } & Addition)
  | { readonly type: "expect"; readonly tasks: number }
  | { readonly type: "wake" }
  | { readonly type: "check" };

export type FromPeer =
  | { readonly type: "ready" }
  /** The added tasks are committed. */
  | { readonly type: "added" }
  /** The expected number of tasks has been handled. */
  | { readonly type: "reached"; readonly tasks: number }
  /** How many tasks were handled, and how many of them more than once. */
  | { readonly type: "counts"; readonly handled: number; readonly repeated: number }
  /** When a job with `mark` started, in ms since 1970 by the clock of the peer's process. */
  | { readonly type: "started"; readonly n: number; readonly at: number };

export function isFromPeer(message: unknown): message is FromPeer {
  return typeof message === "object" && message !== null && "type" in message;
}
