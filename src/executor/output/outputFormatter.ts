import type { OutputFormat } from "../../shared/ipc/run.js";
import { SpillBuffer } from "../../shared/spillBuffer.js";
import { largeOutputBytes, maxBufferedBytes, outputPieceLength } from "../tuning.js";
import type { FieldDescription, ServerMessage } from "../../shared/postgres/protocol/decode.js";

/** Maximum output of a task, in bytes, whatever is configured: one statement has to carry it as a single value. */
export const maxOutputBytes = 256 << 20;

/** Not quoted with the format's `string`: bool, int8, int2, int4, oid, tid, xid, cid, float4, float8, bit, numeric. */
const unquotedTypes = new Set([16, 20, 21, 23, 26, 27, 28, 29, 700, 701, 1560, 1700]);

/** Output as a buffer if it is large, otherwise as text, which is null if there was none. */
export type TakenOutput =
  | { readonly text: string | null; readonly spilled: null }
  | { readonly text: null; readonly spilled: SpillBuffer };

/** Formats a task's output from the server's answers in limited memory. The task fails if it exceeds the limit. */
export class OutputFormatter {
  readonly #format: OutputFormat;
  readonly #maxBytes: number;
  readonly #onFailure: () => void;
  /** Null if it has been called, or is not wanted. */
  #onNear: (() => void) | null;
  /** Completed pieces as UTF-8, outside of the heap. */
  #spillBuffer: SpillBuffer | null = null;
  #piece = "";
  #bytes = 0;
  #isEmpty = true;
  #failure: string | null = null;
  /** Null outside of a result set. */
  #columns: readonly FieldDescription[] | null = null;
  #quoted: readonly boolean[] = [];
  #isHeaderPending = false;
  #isCopying = false;

  /**
   * @param events.failed called once if the output exceeds the limit or is not text: nothing more is added to it, and
   * the caller cancels the run
   * @param events.near called once when the received and announced output comes within `maxBufferedBytes` of the limit
   */
  constructor(
    format: OutputFormat,
    maxBytes: number,
    events: { readonly failed: () => void; readonly near?: (() => void) | null },
  ) {
    this.#format = format;
    this.#maxBytes = Math.min(maxBytes, maxOutputBytes);
    this.#onFailure = events.failed;
    this.#onNear = events.near ?? null;
  }

  get failure(): string | null {
    return this.#failure;
  }

  /** Must not be read after `take`. */
  get text(): string | null {
    if (this.#isEmpty) return null;
    return this.#spillBuffer === null ? this.#piece : this.#spillBuffer.read().toString() + this.#piece;
  }

  take(): TakenOutput {
    if (this.#bytes < largeOutputBytes) {
      const { text } = this;
      this.discard();
      return { text, spilled: null };
    }
    const spilled = this.#spillPiece();
    this.#spillBuffer = null;
    return { text: null, spilled };
  }

  discard(): void {
    this.#spillBuffer?.discard();
    this.#spillBuffer = null;
    this.#piece = "";
  }

  /** Fails if this line would exceed the limit. Called before the statement that yields it is sent. */
  reserve(line: string): void {
    if (this.#failure === null && this.#bytesWith(line) > this.#maxBytes) this.#fail(this.#limitError);
  }

  receive(event: ServerMessage): void {
    if (this.#failure !== null) return;
    switch (event.type) {
      case "rowDescription":
        this.#beginRows(event.columns);
        break;
      case "dataRow":
        this.#addRow(event.values);
        break;
      case "copyOut":
        this.#isCopying = true;
        if (event.binary) this.#fail("binary COPY TO STDOUT is not supported");
        break;
      case "copyData":
        this.#addLine(event.text.endsWith("\n") ? event.text.slice(0, -1) : event.text);
        break;
      case "unreadable":
        this.#fail(event.reason === "size" ? this.#limitError : "output is not encoded in UTF8");
        break;
      case "announced":
        this.#checkNear(this.#bytes + event.bytes);
        break;
      case "commandComplete":
        this.#endStatement(event.tag);
        break;
      case "emptyQuery":
      case "error":
      case "ready":
      case "skipped":
      case "value":
      case "passed":
        break;
    }
  }

  #beginRows(columns: readonly FieldDescription[]): void {
    this.#columns = columns;
    this.#isHeaderPending = this.#format.header && columns.length > 1;
    this.#quoted = columns.map(
      ({ typeOid }) => !(this.#format.string && unquotedTypes.has(typeOid)) && this.#format.quote !== "",
    );
  }

  #addRow(values: readonly (string | null)[]): void {
    const columns = this.#columns ?? [];
    if (columns.some(({ binary }) => binary)) {
      this.#fail("rows in binary format are not supported");
      return;
    }
    const line = values
      .map((value, index) => this.#cell(value, this.#quoted[index] ?? false))
      .join(this.#format.delimiter);
    this.#addLine(this.#isHeaderPending ? `${this.#header(columns)}\n${line}` : line);
    this.#isHeaderPending = false;
  }

  #header(columns: readonly FieldDescription[]): string {
    const quoted = this.#format.quote !== "";
    return columns.map(({ name }) => this.#cell(name, quoted)).join(this.#format.delimiter);
  }

  #cell(value: string | null, quoted: boolean): string {
    if (value === null) return this.#format.null;
    if (!quoted) return value;
    const { quote, escape } = this.#format;
    return quote + (escape === "" ? value : escapeIn(value, quote, escape)) + quote;
  }

  #endStatement(tag: string): void {
    if (this.#columns === null && !this.#isCopying) this.#addLine(tag);
    this.#columns = null;
    this.#isCopying = false;
  }

  #addLine(line: string): void {
    const bytes = this.#bytesWith(line);
    if (bytes > this.#maxBytes) {
      this.#fail(this.#limitError);
      return;
    }
    this.#piece += this.#isEmpty ? line : `\n${line}`;
    this.#isEmpty = false;
    this.#bytes = bytes;
    if (this.#piece.length >= outputPieceLength) this.#spillPiece();
    this.#checkNear(bytes);
  }

  #bytesWith(line: string): number {
    return this.#bytes + Buffer.byteLength(line) + (this.#isEmpty ? 0 : 1);
  }

  #spillPiece(): SpillBuffer {
    this.#spillBuffer ??= new SpillBuffer();
    this.#spillBuffer.append(Buffer.from(this.#piece));
    this.#piece = "";
    return this.#spillBuffer;
  }

  get #limitError(): string {
    return `output exceeds ${this.#maxBytes} bytes${this.#maxBytes < maxOutputBytes ? " (pg_task.output)" : ""}`;
  }

  #checkNear(bytes: number): void {
    if (this.#onNear === null || bytes <= Math.max(0, this.#maxBytes - maxBufferedBytes)) return;
    const onNear = this.#onNear;
    this.#onNear = null;
    onNear();
  }

  #fail(message: string): void {
    this.#failure = message;
    this.#onFailure();
  }
}

function escapeIn(value: string, quote: string, escape: string): string {
  let escaped = value;
  if (escaped.includes(escape)) escaped = escaped.split(escape).join(escape + escape);
  if (quote !== escape && escaped.includes(quote)) {
    escaped = escaped.split(quote).join(escape + quote);
  }
  return escaped;
}
