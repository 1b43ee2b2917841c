import type { Duplex } from "node:stream";
import { PgTaskError } from "../shared/errors.js";
import { Frames } from "./frames.js";
import {
  decodeMessage,
  encodeCopyFail,
  encodeQuery,
  MessageCode,
  type ServerError,
  type TransactionStatus,
  type WireEvent,
} from "./wireMessages.js";

/** Gets an answer's events as they arrive, in order; `ready` is the last. */
export type Receive = (event: WireEvent) => void;

/** A whole, short answer. */
export interface Answer {
  /** Of all statements together. */
  readonly rows: readonly (readonly (string | null)[])[];
  readonly error: ServerError | null;
  readonly status: TransactionStatus;
}

interface PendingAnswer {
  readonly receive: Receive;
  resolve(status: TransactionStatus): void;
  reject(reason: PgTaskError): void;
}

/** A connection that is logged in and idle, which nobody else reads. */
export interface Link {
  /** The server process, as the server's own key data name it. */
  readonly pid: number;
  readonly stream: Duplex;
}

/** A goodbye to the server. */
const terminate = Buffer.from([0x58, 0, 0, 0, 4]);

/** How long the server may take to close the connection after our goodbye. */
const goodbyeMs = 5000;

/**
 * Speaks the simple query protocol over a connection that somebody has opened and logged in.
 *
 * Queries may be sent while others are unanswered: answers come in order, and what is sent in one
 * turn of the event loop leaves in one write.
 */
export class Wire {
  /** The server process, as the server's own key data name it. */
  readonly pid: number;
  /** Why the connection ended; resolves once it has, for whatever reason. */
  readonly ended: Promise<PgTaskError>;
  readonly #stream: Duplex;
  readonly #pending: PendingAnswer[] = [];
  #end: (reason: PgTaskError) => void = () => {};
  #reason: PgTaskError | null = null;
  #over = false;
  #corked = false;

  /** @param messageLimit largest message kept whole, in bytes; asked anew for each */
  constructor({ pid, stream }: Link, messageLimit: () => number) {
    this.pid = pid;
    this.ended = new Promise((resolve) => (this.#end = resolve));
    this.#stream = stream;
    const frames = new Frames(messageLimit, (code, body, whole) =>
      this.#message(code, body, whole),
    );
    stream.on("data", (chunk: Buffer) => this.#read(frames, chunk));
    stream.on("error", (error) => (this.#reason ??= lost(error.message)));
    stream.once("close", () => this.#finish());
  }

  /**
   * Sends a query. Resolves with the transaction status when the answer is complete, also when it
   * holds an error.
   *
   * @throws PgTaskError CONNECTION_LOST when the connection ends before that
   */
  query(text: string, receive: Receive): Promise<TransactionStatus> {
    const answer = new Promise<TransactionStatus>((resolve, reject) => {
      if (this.#over) reject(this.#reason ?? lost("it has been closed"));
      else this.#pending.push({ receive, resolve, reject });
    });
    if (!this.#over) this.#write(encodeQuery(text));
    return spared(answer);
  }

  /**
   * Sends a query with a short answer and collects it.
   *
   * @throws PgTaskError CONNECTION_LOST when the connection ends before the answer is complete
   */
  ask(text: string): Promise<Answer> {
    const rows: (readonly (string | null)[])[] = [];
    let error: ServerError | null = null;
    const collected = this.query(text, (event) => {
      if (event.type === "dataRow") rows.push(event.values);
      else if (event.type === "error") error = event.error;
    }).then((status) => ({ rows, error, status }));
    return spared(collected);
  }

  /** Says goodbye to the server; resolves when the connection is closed. */
  async close(): Promise<void> {
    if (this.#over) return;
    this.#reason ??= lost("it has been closed");
    this.#stream.end(terminate);
    const timer = setTimeout(() => this.#stream.destroy(), goodbyeMs);
    await this.ended;
    clearTimeout(timer);
  }

  /** Ends the connection at once, whatever is under way; all that is unanswered is rejected. */
  destroy(reason: PgTaskError): void {
    this.#reason ??= reason;
    this.#stream.destroy();
  }

  #write(message: Buffer): void {
    const stream = this.#stream;
    if (!this.#corked) {
      this.#corked = true;
      stream.cork();
      process.nextTick(() => {
        this.#corked = false;
        stream.uncork();
      });
    }
    stream.write(message);
  }

  #read(frames: Frames, chunk: Buffer): void {
    try {
      frames.push(chunk);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      this.destroy(lost(`what the server sent cannot be read: ${message}`));
    }
  }

  #message(code: number, body: Buffer, whole: boolean): void {
    if (this.#reason !== null) return;
    if (code === MessageCode.copyInResponse || code === MessageCode.copyBothResponse) {
      this.#write(encodeCopyFail("COPY FROM STDIN is not supported"));
      return;
    }
    const event = decodeMessage(code, body, whole);
    if (event === null) return;
    if (event.type === "error" && event.error.severity !== "ERROR") {
      // The server closes the connection with these words.
      this.destroy(lost(event.error.message));
      return;
    }
    const pending = this.#pending[0];
    if (pending === undefined) throw new Error(`an unasked message of type ${code}`);
    if (event.type === "ready") this.#pending.shift();
    pending.receive(event);
    if (event.type === "ready") pending.resolve(event.status);
  }

  #finish(): void {
    this.#over = true;
    const reason = (this.#reason ??= lost("it ended unexpectedly"));
    for (const pending of this.#pending.splice(0)) pending.reject(reason);
    this.#end(reason);
  }
}

/** Of several answers that are lost together the first ends the wait for them all. */
function spared<T>(answer: Promise<T>): Promise<T> {
  answer.catch(() => {});
  return answer;
}

function lost(why: string): PgTaskError {
  return new PgTaskError("CONNECTION_LOST", `the connection to the server was lost: ${why}`);
}
