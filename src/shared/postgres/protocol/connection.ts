import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { errorMessage, PgTaskError } from "../../errors.js";
import { MessageFramer } from "./messageFramer.js";
import {
  decodeMessage,
  MessageCode,
  valueAt,
  type ServerError,
  type TransactionStatus,
  type ServerMessage,
} from "./decode.js";
import { encodeStatement, queryLength, sync, writeQuery, type Block, type Parameters, copyRefusal } from "./encode.js";

export type Receive = (event: ServerMessage) => void;

export interface Answer {
  /** The rows of all statements together. */
  readonly rows: readonly (readonly (string | null)[])[];
  readonly error: ServerError | null;
  readonly status: TransactionStatus;
}

interface PendingAnswer {
  readonly receive: Receive;
  readonly kind: "query" | "synced" | "statement" | "guard" | "call" | "sync";
  readonly lost: ((reason: PgTaskError) => void) | null;
  commands: number;
  failed: boolean;
  /** Held back until the Sync has ended the transaction. */
  tag: ServerMessage | null;
}

const passed: ServerMessage = { type: "passed" };

const terminate = Buffer.from([0x58, 0, 0, 0, 4]);

const closeMs = 5000;

/**
 * Speaks the query protocols over a logged-in connection. Answers arrive in order, and what is sent in one turn of the
 * event loop leaves in one write. After a failed query, the server runs the next one. After a failed guard or statement,
 * it skips everything that was sent behind it.
 */
export class ProtocolConnection {
  readonly pid: number;
  /** The server's IP address; null for a Unix-domain socket. */
  readonly peer: string | null;
  /** Resolves with the reason when the connection has ended. */
  readonly ended: Promise<PgTaskError>;
  #status: TransactionStatus = "I";
  readonly #stream: Duplex;
  #pending: PendingAnswer[] = [];
  #outgoing: (string | Buffer)[] = [];
  #outgoingBytes = 0;
  /** When data last arrived, or the first unanswered message was written. */
  #silentSince = 0;
  #end: (reason: PgTaskError) => void = () => {};
  #reason: PgTaskError | null = null;
  #over = false;

  /** @param messageLimit returns the size of the largest message that is kept whole; called for each message */
  constructor({ pid, stream }: { readonly pid: number; readonly stream: Duplex }, messageLimit: () => number) {
    this.pid = pid;
    this.peer = stream instanceof Socket ? (stream.remoteAddress ?? null) : null;
    this.ended = new Promise((resolve) => (this.#end = resolve));
    this.#stream = stream;
    const frames = new MessageFramer(
      messageLimit,
      (code, body, whole) => this.#message(code, body, whole),
      (_, bytes) => this.#pending[0]?.receive({ type: "announced", bytes }),
    );
    stream.on("data", (chunk: Buffer) => this.#read(frames, chunk));
    stream.on("error", (error) => (this.#reason ??= lost(error.message)));
    stream.once("close", () => {
      frames.drop();
      this.#finish();
    });
  }

  get status(): TransactionStatus {
    return this.#status;
  }

  /** Sends a query. If the connection ends before the answer is complete, `receive` gets no further messages. */
  send(text: string, receive: Receive): void {
    this.#request("query", receive, text);
  }

  /**
   * Sends commands on which everything sent behind them depends: if one fails, each request up to the next Sync gets
   * `skipped`. The server can delay the answer until it receives a Flush, a Sync or a query.
   */
  guard({ bytes, commands }: Block, receive: Receive): void {
    this.#request("guard", receive, bytes, commands);
  }

  /** Sends one statement, which is answered like a query and is otherwise like a guard. */
  statement(text: string, receive: Receive, parameters?: Parameters): void {
    this.#request("statement", receive, encodeStatement(text, parameters));
  }

  /** Sends one statement with parameters that otherwise behaves like a query. */
  sendStatement(text: string, receive: Receive, parameters: Parameters): void {
    this.#request("synced", receive, Buffer.concat([encodeStatement(text, parameters), sync]));
  }

  /** Makes the server send all delayed answers. A failed call fails the transaction, but nothing is skipped. */
  call(bytes: Buffer, receive: Receive): void {
    this.#request("call", receive, bytes);
  }

  /** Makes the server answer all guards sent so far, and ends the skipping after a failed guard. */
  sync(receive: Receive): void {
    this.#request("sync", receive, sync);
  }

  /** Collects a short answer. Rejects with CONNECTION_LOST if the connection ends first. */
  query(text: string): Promise<Answer> {
    const answer = new Promise<Answer>((resolve, reject) => {
      if (this.#over) {
        reject(this.#reason ?? lost("closed"));
        return;
      }
      const rows: (readonly (string | null)[])[] = [];
      let error: ServerError | null = null;
      const receive: Receive = (event) => {
        if (event.type === "dataRow") rows.push(event.values);
        else if (event.type === "error") error = event.error;
        else if (event.type === "ready") resolve({ rows, error, status: event.status });
      };
      this.#request("query", receive, text, 0, reject);
    });
    // If the connection is lost, several answers reject at once, and the caller may await only the first of them.
    answer.catch(() => {});
    return answer;
  }

  /** Returns how long nothing has arrived although an answer is awaited, in ms; 0 if no answer is awaited. */
  async silentMs(): Promise<number> {
    const now = performance.now();
    // Data that arrived while this thread was busy is read in the next round of the event loop.
    for (let round = 0; round < 2; round += 1) await new Promise((resolve) => setImmediate(resolve));
    const isAwaiting = !this.#over && this.#pending.length > 0 && !this.#stream.isPaused();
    return isAwaiting ? Math.max(0, now - this.#silentSince) : 0;
  }

  /** Stops reading until `resume`. Once the buffers are full, backpressure stops the server. */
  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    // Otherwise, cancels that are repeated on a half-open connection would hide its silence.
    if (!this.#stream.isPaused()) return;
    this.#silentSince = performance.now();
    this.#stream.resume();
  }

  async close(): Promise<void> {
    if (this.#over) return;
    this.#reason ??= lost("closed");
    this.#stream.end(terminate);
    const timer = setTimeout(() => this.#stream.destroy(), closeMs);
    await this.ended;
    clearTimeout(timer);
  }

  destroy(reason: PgTaskError): void {
    this.#reason ??= reason;
    this.#stream.destroy();
  }

  #request(
    kind: PendingAnswer["kind"],
    receive: Receive,
    message: string | Buffer,
    commands = 0,
    whenLost: PendingAnswer["lost"] = null,
  ): void {
    if (this.#over) return;
    this.#pending.push({ kind, receive, commands, lost: whenLost, failed: false, tag: null });
    if (this.#pending.length === 1) this.#silentSince = Infinity;
    if (this.#outgoing.length === 0) process.nextTick(() => this.#flush());
    this.#outgoing.push(message);
    this.#outgoingBytes += typeof message === "string" ? queryLength(message) : message.length;
  }

  #flush(): void {
    if (this.#outgoing.length === 0) return;
    const buffer = Buffer.allocUnsafe(this.#outgoingBytes);
    let end = 0;
    for (const message of this.#outgoing) {
      if (typeof message === "string") end = writeQuery(message, buffer, end);
      else end += message.copy(buffer, end);
    }
    this.#outgoing = [];
    this.#outgoingBytes = 0;
    if (this.#silentSince === Infinity) this.#silentSince = performance.now();
    if (!this.#over && this.#reason === null) this.#stream.write(buffer);
  }

  #read(frames: MessageFramer, chunk: Buffer): void {
    this.#silentSince = performance.now();
    try {
      frames.push(chunk);
    } catch (error) {
      this.destroy(lost(`the server's message cannot be read: ${errorMessage(error)}`));
    }
  }

  #message(code: number, body: Buffer, whole: boolean): void {
    if (this.#reason !== null) return;
    const copyAnswer = copyRefusal(code);
    if (copyAnswer !== null) {
      this.#stream.write(copyAnswer);
      return;
    }
    const pending = this.#pending[0];
    if (pending?.kind === "guard" && this.#guardAnswer(pending, code, body)) return;
    if (pending?.kind === "call" && code === MessageCode.callResult) {
      pending.receive({ type: "value", bytes: valueAt(0, body) });
      return;
    }
    const event = decodeMessage(code, body, whole);
    if (event === null) return;
    if (event.type === "error" && event.error.severity !== "ERROR") {
      // After a FATAL or PANIC error, the server closes the connection.
      this.destroy(lost(event.error.message));
      return;
    }
    if (pending === undefined) throw new Error(`unexpected message of type ${code}`);
    this.#answer(pending, event);
  }

  #answer(pending: PendingAnswer, event: ServerMessage): void {
    if (pending.kind === "synced" && this.#delayTag(pending, event)) return;
    if (event.type === "ready") {
      this.#status = event.status;
      this.#pending.shift();
      if (pending.kind === "call") {
        pending.receive(pending.failed ? { type: "skipped", status: event.status } : passed);
        return;
      }
    } else if (event.type === "error") {
      if (pending.kind === "call") pending.failed = true;
      else if (pending.kind !== "query" && pending.kind !== "synced") this.#skip();
    }
    pending.receive(event);
    if (pending.kind === "statement" && endsStatement(event)) {
      this.#pending.shift();
      pending.receive(passed);
    }
  }

  /** As with a query, there is no tag if the transaction fails at its end. Returns whether the message is handled. */
  #delayTag(pending: PendingAnswer, event: ServerMessage): boolean {
    if (event.type === "commandComplete") {
      pending.tag = event;
      return true;
    }
    if (event.type === "ready" && pending.tag !== null) pending.receive(pending.tag);
    if (event.type === "error") pending.tag = null;
    return false;
  }

  /** Returns whether the message belongs to a guard without an error. */
  #guardAnswer(guard: PendingAnswer, code: number, body: Buffer): boolean {
    if (code === MessageCode.dataRow) guard.receive({ type: "value", bytes: valueAt(2, body) });
    else if (code === MessageCode.commandComplete) {
      guard.commands -= 1;
      if (guard.commands > 0) return true;
      this.#pending.shift();
      guard.receive(passed);
    } else return false;
    return true;
  }

  /** Handles the failure of a guard or statement: the server then skips everything up to the next Sync. */
  #skip(): void {
    if (!this.#pending.some(endsSkipping)) this.sync(() => {});
    const end = this.#pending.findIndex(endsSkipping);
    const skipped = this.#pending.splice(0, end + 1);
    const receive: Receive = (event) => {
      if (event.type !== "ready") return;
      const { status } = event;
      for (const each of skipped) each.receive({ type: "skipped", status });
    };
    this.#pending.unshift({ receive, kind: "sync", lost: null, commands: 0, failed: false, tag: null });
  }

  #finish(): void {
    this.#over = true;
    const reason = (this.#reason ??= lost("ended unexpectedly"));
    for (const pending of this.#pending.splice(0)) pending.lost?.(reason);
    this.#end(reason);
  }
}

const endsSkipping = ({ kind }: PendingAnswer): boolean => kind === "sync" || kind === "synced";

const endsStatement = ({ type }: ServerMessage): boolean => type === "commandComplete" || type === "emptyQuery";

function lost(why: string): PgTaskError {
  return new PgTaskError("CONNECTION_LOST", `connection to the server lost: ${why}`);
}

/** Returns the last column of the answer's first row, or null if there is no row. */
export function lastValue(answer: Answer): string | null {
  return answer.error === null ? (answer.rows[0]?.at(-1) ?? null) : null;
}

export function firstError(answers: readonly Answer[]): ServerError | null {
  return answers.find(({ error }) => error !== null)?.error ?? null;
}
