/** What a peer's process is told, as its one argument in JSON. */
export interface PeerArguments {
  readonly url: string;
  /** Options of the peer, by its own names. */
  readonly setting: Readonly<Record<string, unknown>>;
  /** Connections of the pool that the handlers run their statements on. */
  readonly pool: number;
}

/** The payload of each of a peer's jobs. */
export interface Payload {
  readonly n: number;
  readonly sql: string;
  /** Asks when it starts; the statement is not run. */
  readonly mark?: true;
}

/** Tasks to be added by the peer's own client; SQL expressions of the task's number `n`. */
export interface Addition {
  readonly first: number;
  readonly last: number;
  readonly input: string;
  readonly group: string | null;
}

export type ToPeer =
  | ({ readonly type: "add" } & Addition)
  | { readonly type: "expect"; readonly tasks: number }
  | { readonly type: "wake" }
  | { readonly type: "check" };

export type FromPeer =
  | { readonly type: "ready" }
  /** What was to be added is committed. */
  | { readonly type: "added" }
  /** So many as were expected have been handled. */
  | { readonly type: "reached"; readonly tasks: number }
  /** How often tasks were handled, and how many tasks more than once. */
  | { readonly type: "counts"; readonly handled: number; readonly repeated: number }
  /** When a marked job started, in ms since 1970 by this process's clock. */
  | { readonly type: "started"; readonly n: number; readonly at: number };

export function isFromPeer(message: unknown): message is FromPeer {
  return typeof message === "object" && message !== null && "type" in message;
}
