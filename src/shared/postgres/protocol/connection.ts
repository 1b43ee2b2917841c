import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { PgTaskError } from "../../errors.js";
import { MessageFramer } from "./messageFramer.js";
import {
  callResult,
  decodeMessage,
  encodeCopyFail,
  encodeStatement,
  firstColumn,
  MessageCode,
  queryLength,
  sync,
  writeQuery,
  type Block,
  type ServerError,
  type TransactionStatus,
  type ServerMessage,
} from "./messages.js";

/** Gets an answer's events as they arrive, in order. */
export type Receive = (event: ServerMessage) => void;

/** A whole, short answer. */
export interface Answer {
  /** Of all statements together. */
  readonly rows: readonly (readonly (string | null)[])[];
  readonly error: ServerError | null;
  readonly status: TransactionStatus;
}

interface PendingAnswer {
  readonly receive: Receive;
  readonly kind: "query" | "statement" | "guard" | "call" | "sync";
  readonly lost: ((reason: PgTaskError) => void) | null;
  /** How many of a guard's commands are unanswered. */
  commands: number;
  /** Whether a call has failed. */
  failed: boolean;
}

const passed: ServerMessage = { type: "passed" };

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
 * Speaks the query protocols over a connection that somebody has opened and logged in.
 *
 * Queries may be sent while others are unanswered: answers come in order, and what is sent in one
 * turn of the event loop leaves in one write. After a failed query the next is run all the same; after
 * a failed *guard* or *statement* the server skips whatever is on the wire behind it.
 */
export class ProtocolConnection {
  /** The server process, as the server's own key data name it. */
  readonly pid: number;
  /** The server's address, null for a socket of this machine. */
  readonly peer: string | null;
  /** Why the connection ended; resolves once it has, for whatever reason. */
  readonly ended: Promise<PgTaskError>;
  /** Of the transaction, as the server said last. */
  #status: TransactionStatus = "I";
  readonly #stream: Duplex;
  #pending: PendingAnswer[] = [];
  /** What leaves at the end of this turn, and how many bytes it is. */
  #outgoing: (string | Buffer)[] = [];
  #outgoingBytes = 0;
  /** Since when nothing has come, or since the question that is awaited an answer of left. */
  #quietFrom = 0;
  #end: (reason: PgTaskError) => void = () => {};
  #reason: PgTaskError | null = null;
  #over = false;

  /** @param messageLimit largest message kept whole, in bytes; asked anew for each */
  constructor({ pid, stream }: Link, messageLimit: () => number) {
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

  /** Whether a transaction is open, or has failed, as the server said last. */
  get status(): TransactionStatus {
    return this.#status;
  }

  /** Sends a query. On a connection that has ended, or ends before the answer, nothing is heard. */
  send(text: string, receive: Receive): void {
    if (this.#over) return;
    this.#await("query", receive);
    this.#queue(text, queryLength(text));
  }

  /**
   * Sends commands; when one fails, what is on the wire behind it by then is answered by `skipped`.
   * The answer may wait in the server until it is asked for, or a query is sent.
   */
  guard({ bytes, commands }: Block, receive: Receive): void {
    if (this.#over) return;
    this.#await("guard", receive, commands);
    this.#queue(bytes, bytes.length);
  }

  /** Sends one statement, answered as a query but guarding what is behind it, and delayed, like a guard. */
  statement(text: string, receive: Receive): void {
    if (this.#over) return;
    this.#await("statement", receive);
    const bytes = encodeStatement(text);
    this.#queue(bytes, bytes.length);
  }

  /**
   * Calls a function. Its answer comes without being asked for, with all before it. When it fails, its
   * transaction does, but nothing is skipped for it.
   */
  call(bytes: Buffer, receive: Receive): void {
    if (this.#over) return;
    this.#await("call", receive);
    this.#queue(bytes, bytes.length);
  }

  /** Makes the server answer the guards before it, and skip no further. */
  sync(receive: Receive): void {
    if (this.#over) return;
    this.#await("sync", receive);
    this.#queue(sync, sync.length);
  }

  /**
   * Sends a query with a short answer and collects it.
   *
   * @throws PgTaskError CONNECTION_LOST when the connection ends before the answer is complete
   */
  ask(text: string): Promise<Answer> {
    const answer = new Promise<Answer>((resolve, reject) => {
      if (this.#over) {
        reject(this.#reason ?? lost("it has been closed"));
        return;
      }
      const rows: (readonly (string | null)[])[] = [];
      let error: ServerError | null = null;
      const receive: Receive = (event) => {
        if (event.type === "dataRow") rows.push(event.values);
        else if (event.type === "error") error = event.error;
        else if (event.type === "ready") resolve({ rows, error, status: event.status });
      };
      this.#await("query", receive, 0, reject);
      this.#queue(text, queryLength(text));
    });
    // Of several answers that are lost together the first ends the wait for them all.
    answer.catch(() => {});
    return answer;
  }

  /** For how long an answer has been awaited and nothing at all has come, in ms; 0 when none is. */
  async silentMs(): Promise<number> {
    const now = performance.now();
    // What came by now, while this thread was busy, is read in the next round of its event loop.
    for (let round = 0; round < 2; round += 1)
      await new Promise((resolve) => setImmediate(resolve));
    const awaits = !this.#over && this.#pending.length > 0 && !this.#stream.isPaused();
    return awaits ? Math.max(0, now - this.#quietFrom) : 0;
  }

  /** Reads nothing more until `resume`, so that the server cannot go on once the way to us is full. */
  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#quietFrom = performance.now();
    this.#stream.resume();
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

  #await(
    kind: PendingAnswer["kind"],
    receive: Receive,
    commands = 0,
    whenLost: PendingAnswer["lost"] = null,
  ): void {
    this.#pending.push({ kind, receive, commands, lost: whenLost, failed: false });
  }

  #queue(message: string | Buffer, bytes: number): void {
    if (this.#pending.length === 1) this.#quietFrom = Infinity;
    if (this.#outgoing.length === 0) process.nextTick(() => this.#flush());
    this.#outgoing.push(message);
    this.#outgoingBytes += bytes;
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
    if (this.#quietFrom === Infinity) this.#quietFrom = performance.now();
    if (!this.#over && this.#reason === null) this.#stream.write(buffer);
  }

  #read(frames: MessageFramer, chunk: Buffer): void {
    this.#quietFrom = performance.now();
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
      this.#stream.write(encodeCopyFail("COPY FROM STDIN is not supported"));
      return;
    }
    const pending = this.#pending[0];
    if (pending?.kind === "guard" && this.#guardAnswer(pending, code, body)) return;
    if (pending?.kind === "call" && code === MessageCode.callResult) {
      pending.receive({ type: "value", bytes: callResult(body) });
      return;
    }
    const event = decodeMessage(code, body, whole);
    if (event === null) return;
    if (event.type === "error" && event.error.severity !== "ERROR") {
      // The server closes the connection with these words.
      this.destroy(lost(event.error.message));
      return;
    }
    if (pending === undefined) throw new Error(`an unasked message of type ${code}`);
    if (event.type === "ready") {
      this.#status = event.status;
      this.#pending.shift();
      if (pending.kind === "call") {
        pending.receive(pending.failed ? { type: "skipped", status: event.status } : passed);
        return;
      }
    } else if (event.type === "error") {
      if (pending.kind === "call") pending.failed = true;
      else if (pending.kind !== "query") this.#skip();
    }
    pending.receive(event);
    if (pending.kind === "statement" && endsStatement(event)) {
      this.#pending.shift();
      pending.receive(passed);
    }
  }

  /** True for what a guard that succeeds is answered. */
  #guardAnswer(guard: PendingAnswer, code: number, body: Buffer): boolean {
    if (code === MessageCode.dataRow) guard.receive({ type: "value", bytes: firstColumn(body) });
    else if (code === MessageCode.commandComplete) {
      guard.commands -= 1;
      if (guard.commands > 0) return true;
      this.#pending.shift();
      guard.receive(passed);
    } else return false;
    return true;
  }

  /** A guard has failed: it and all that is before the next sync get one more answer. */
  #skip(): void {
    if (!this.#pending.some(({ kind }) => kind === "sync")) this.sync(() => {});
    const end = this.#pending.findIndex(({ kind }) => kind === "sync");
    const skipped = this.#pending.splice(0, end + 1);
    const receive: Receive = (event) => {
      if (event.type !== "ready") return;
      const { status } = event;
      for (const each of skipped) each.receive({ type: "skipped", status });
    };
    this.#pending.unshift({ receive, kind: "sync", lost: null, commands: 0, failed: false });
  }

  #finish(): void {
    this.#over = true;
    const reason = (this.#reason ??= lost("it ended unexpectedly"));
    for (const pending of this.#pending.splice(0)) pending.lost?.(reason);
    this.#end(reason);
  }
}

const endsStatement = ({ type }: ServerMessage): boolean =>
  type === "commandComplete" || type === "emptyQuery";

function lost(why: string): PgTaskError {
  return new PgTaskError("CONNECTION_LOST", `the connection to the server was lost: ${why}`);
}

/** The last column of a short answer's first row, null when there is none. */
export function lastValue(answer: Answer): string | null {
  return answer.error === null ? (answer.rows[0]?.at(-1) ?? null) : null;
}

export function firstError(answers: readonly Answer[]): ServerError | null {
  return answers.find(({ error }) => error !== null)?.error ?? null;
}
