import type { OutputFormat } from "../../shared/ipc/messages.js";
import { SpillBuffer } from "../../shared/spillBuffer.js";
import type { FieldDescription, ServerMessage } from "../../shared/postgres/protocol/messages.js";

/** bool, int8, int2, int4, oid, tid, xid, cid, float4, float8, bit, numeric. */
const plainTypes = new Set([16, 20, 21, 23, 26, 27, 28, 29, 700, 701, 1560, 1700]);

/**
 * Lines are joined to pieces of about this many characters, so that many short ones stay cheap; the
 * pieces are kept as UTF-8, which is outside of the thread's heap and its collections.
 */
const pieceLength = 1 << 16;

/** From so much on, in bytes, output is handed on as bytes, and by itself. */
const largeOutput = 1 << 20;

/** Most output of a task, in bytes, whatever its limit: a statement has to carry it as one value. */
export const maxOutputBytes = 256 << 20;

/** An output that its taker has from then on: text, or a store where it is large; null is none at all. */
export type TakenOutput =
  | { readonly text: string | null; readonly stored: null }
  | { readonly text: null; readonly stored: SpillBuffer };

/** Makes a task's output of what the server answers, in bounded memory. */
export class OutputFormatter {
  readonly #format: OutputFormat;
  readonly #limit: number;
  readonly #onFailure: () => void;
  /** Null until there is more than a piece. */
  #store: SpillBuffer | null = null;
  #piece = "";
  #bytes = 0;
  #empty = true;
  #failure: string | null = null;
  /** The columns of the rows set that is being read, null outside of one. */
  #columns: readonly FieldDescription[] | null = null;
  #quoted: readonly boolean[] = [];
  #headerDue = false;
  #copying = false;
  /** Beyond so many bytes it is told once that the limit may be near. */
  #foreseenAt = Infinity;
  #onForeseen: () => void = () => {};

  /**
   * @param limit most bytes of UTF-8 kept, where that is less than `mostOutput`
   * @param onFailure called once, when the output cannot be taken; nothing is added from then on
   */
  constructor(format: OutputFormat, limit: number, onFailure: () => void) {
    this.#format = format;
    this.#limit = Math.min(limit, maxOutputBytes);
    this.#onFailure = onFailure;
  }

  /** Why the output could not be taken, null when it could. */
  get failure(): string | null {
    return this.#failure;
  }

  /** All that was kept and not taken; null when there was nothing at all. */
  get text(): string | null {
    if (this.#empty) return null;
    return this.#store === null ? this.#piece : this.#store.read().toString() + this.#piece;
  }

  /** All that was kept; nothing of it is left here. */
  take(): TakenOutput {
    if (this.#bytes < largeOutput) {
      const { text } = this;
      this.drop();
      return { text, stored: null };
    }
    const stored = this.#keepPiece();
    this.#store = null;
    return { text: null, stored };
  }

  /** What was kept is not wanted. */
  drop(): void {
    this.#store?.drop();
    this.#store = null;
    this.#piece = "";
  }

  /**
   * @param beforeLimit how far before the limit, in bytes, it is to be told that more has come or is
   * announced; where the limit is less than that, at the first
   */
  foresee(beforeLimit: number, onForeseen: () => void): void {
    this.#foreseenAt = Math.max(0, this.#limit - beforeLimit);
    this.#onForeseen = onForeseen;
  }

  /** Fails when this line would be too much: so that it is known before its statement is sent. */
  reserve(line: string): void {
    if (this.#failure === null && this.#bytesWith(line) > this.#limit) this.#fail(this.#tooLarge);
  }

  receive(event: ServerMessage): void {
    if (this.#failure !== null) return;
    switch (event.type) {
      case "rowDescription":
        this.#beginRows(event.columns);
        break;
      case "dataRow":
        this.#row(event.values);
        break;
      case "copyOut":
        this.#copying = true;
        if (event.binary) this.#fail("binary COPY TO STDOUT is not supported");
        break;
      case "copyData":
        this.#add(event.text.endsWith("\n") ? event.text.slice(0, -1) : event.text);
        break;
      case "unreadable":
        this.#fail(event.reason === "size" ? this.#tooLarge : "output is not encoded in UTF8");
        break;
      case "announced":
        this.#reach(this.#bytes + event.bytes);
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
    this.#headerDue = this.#format.header && columns.length > 1;
    this.#quoted = columns.map(
      ({ typeOid }) =>
        !(this.#format.string && plainTypes.has(typeOid)) && this.#format.quote !== "",
    );
  }

  #row(values: readonly (string | null)[]): void {
    const columns = this.#columns ?? [];
    if (columns.some(({ binary }) => binary)) {
      this.#fail("rows in binary format are not supported");
      return;
    }
    const line = values
      .map((value, index) => this.#cell(value, this.#quoted[index] ?? false))
      .join(this.#format.delimiter);
    this.#add(this.#headerDue ? `${this.#header(columns)}\n${line}` : line);
    this.#headerDue = false;
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
    if (this.#columns === null && !this.#copying) this.#add(tag);
    this.#columns = null;
    this.#copying = false;
  }

  #add(line: string): void {
    const bytes = this.#bytesWith(line);
    if (bytes > this.#limit) {
      this.#fail(this.#tooLarge);
      return;
    }
    this.#piece += this.#empty ? line : `\n${line}`;
    this.#empty = false;
    this.#bytes = bytes;
    if (this.#piece.length >= pieceLength) this.#keepPiece();
    this.#reach(bytes);
  }

  #bytesWith(line: string): number {
    return this.#bytes + Buffer.byteLength(line) + (this.#empty ? 0 : 1);
  }

  #reach(bytes: number): void {
    if (bytes <= this.#foreseenAt) return;
    this.#foreseenAt = Infinity;
    this.#onForeseen();
  }

  #keepPiece(): SpillBuffer {
    this.#store ??= new SpillBuffer();
    this.#store.add(Buffer.from(this.#piece));
    this.#piece = "";
    return this.#store;
  }

  get #tooLarge(): string {
    return `output exceeds ${this.#limit} bytes`;
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
