import type { Shape } from "../work.js";

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
  /** How often it is tried at most, if its first try fails. */
  readonly tries?: number;
  /** The first and the last number of the jobs that have to be done before this one starts. */
  readonly after?: readonly [number, number] | null;
  /** For a library without dependencies: what this job adds when it is done. */
  readonly next?: Next;
  /** If set, the job only reports when it starts, and does not execute its statement. */
  readonly mark?: true;
  /** When its transaction began, in ms since 1970 by the server's clock. If set, the time until its start is kept. */
  readonly at?: number;
}

type Next =
  /** The next job of a chain, which is followed by `left` − 1 others. */
  | { readonly kind: "chain"; readonly left: number }
  | { readonly kind: "fan-out"; readonly jobs: number }
  /** The job with this number, if this is the last of the jobs before it. */
  | { readonly kind: "fan-in"; readonly last: number };

/** Tasks to add with the peer's own client. In the SQL expressions, `n` is the task's number. */
export interface Addition {
  readonly first: number;
  readonly last: number;
  readonly input: string;
  readonly group: string | null;
  readonly key: string | null;
  readonly tries: number | null;
  readonly shape: Shape | null;
}

/** Requests for the jobs of a few keys, each in a transaction of its own. */
export interface Requests {
  readonly requests: number;
  readonly keys: number;
  /** How many requests are made at once. */
  readonly producers: number;
}

export type ToPeer =
  | ({ readonly type: "add" } & Addition)
  | { readonly type: "expect"; readonly tasks: number }
  | { readonly type: "wake" }
  | ({ readonly type: "request" } & Requests)
  | { readonly type: "check" }
  /** Asks for the kept times until the starts, and forgets them. */
  | { readonly type: "starts" };

export type FromPeer =
  | { readonly type: "ready" }
  /** The added tasks are committed. */
  | { readonly type: "added" }
  /** All requests are made; when the last one of each key began, in ms since 1970. */
  | { readonly type: "requested"; readonly last: readonly number[]; readonly ms: number }
  /** The expected number of tasks has been handled. */
  | { readonly type: "reached"; readonly tasks: number }
  /**
   * How many tasks were handled, how many of them more than once, how many tries failed, and for how many tasks
   * another one had not been waited.
   */
  | {
      readonly type: "counts";
      readonly handled: number;
      readonly repeated: number;
      readonly failed: number;
      readonly early: number;
    }
  /** Times from `at` until the start of each job, in ms. The server's clock is taken to agree with the peer's. */
  | { readonly type: "started-after"; readonly ms: readonly number[] }
  /** When a job with `mark` started, in ms since 1970 by the clock of the peer's process. */
  | { readonly type: "started"; readonly n: number; readonly at: number };

export function isFromPeer(message: unknown): message is FromPeer {
  return typeof message === "object" && message !== null && "type" in message;
}
