import { isUtf8 } from "node:buffer";

/** A column of a result. */
export interface FieldDescription {
  readonly name: string;
  readonly typeOid: number;
  /** Values come in the type's binary format, as from a binary cursor. */
  readonly binary: boolean;
}

/** An error as the server reported it. Positions count characters from 1. */
export interface ServerError {
  /** In English, whatever the server's language: ERROR, FATAL or PANIC. */
  readonly severity: string;
  /** SQLSTATE. */
  readonly code: string;
  readonly message: string;
  readonly detail?: string;
  readonly hint?: string;
  readonly position?: string;
  readonly internalPosition?: string;
  readonly internalQuery?: string;
  readonly where?: string;
}

/** Idle, in a transaction, in a failed transaction. */
export type TransactionStatus = "I" | "T" | "E";

/**
 * What an answer consists of. The last of a query's is `ready`, or `skipped` when the server passed it
 * over; of a guard's, a statement's and a call's `passed` or, after its `error`, `skipped`.
 */
export type ServerMessage =
  | { readonly type: "rowDescription"; readonly columns: readonly FieldDescription[] }
  | { readonly type: "dataRow"; readonly values: readonly (string | null)[] }
  | { readonly type: "copyOut"; readonly binary: boolean }
  | { readonly type: "copyData"; readonly text: string }
  /** A large message has begun to come, of so many bytes. */
  | { readonly type: "announced"; readonly bytes: number }
  /** A row or COPY data that could not be taken: larger than the wire's limit, or no UTF-8. */
  | { readonly type: "unreadable"; readonly reason: "size" | "encoding" }
  | { readonly type: "commandComplete"; readonly tag: string }
  | { readonly type: "emptyQuery" }
  | { readonly type: "error"; readonly error: ServerError }
  | { readonly type: "ready"; readonly status: TransactionStatus }
  /** The first column of a guard's row, or a call's result, in binary format, valid only while it is told; null for NULL. */
  | { readonly type: "value"; readonly bytes: Buffer | null }
  /** All commands of a guard, or a statement, or a call, have succeeded. */
  | { readonly type: "passed" }
  | { readonly type: "skipped"; readonly status: TransactionStatus };

/** The server's message types that matter here, by their byte. */
export const MessageCode = {
  parseComplete: 0x31,
  bindComplete: 0x32,
  notification: 0x41,
  commandComplete: 0x43,
  dataRow: 0x44,
  error: 0x45,
  copyInResponse: 0x47,
  copyOutResponse: 0x48,
  emptyQuery: 0x49,
  callResult: 0x56,
  noData: 0x6e,
  notice: 0x4e,
  parameterStatus: 0x53,
  rowDescription: 0x54,
  copyBothResponse: 0x57,
  ready: 0x5a,
  copyDone: 0x63,
  copyData: 0x64,
} as const;

const unreadableEncoding: ServerMessage = { type: "unreadable", reason: "encoding" };
const unreadableSize: ServerMessage = { type: "unreadable", reason: "size" };
const emptyQuery: ServerMessage = { type: "emptyQuery" };

/**
 * The event that a message means, null when it means none to a task.
 *
 * @throws RangeError when the body is shorter than its type demands
 * @throws Error when the type has no place in an answer to a simple query
 */
export function decodeMessage(code: number, body: Buffer, whole: boolean): ServerMessage | null {
  switch (code) {
    case MessageCode.dataRow:
      return whole ? decodeDataRow(body) : unreadableSize;
    case MessageCode.copyData:
      if (!whole) return unreadableSize;
      return isUtf8(body) ? { type: "copyData", text: body.toString() } : unreadableEncoding;
    case MessageCode.rowDescription:
      return { type: "rowDescription", columns: decodeColumns(body) };
    case MessageCode.commandComplete:
      return { type: "commandComplete", tag: decodeText(body.subarray(0, body.length - 1)) };
    case MessageCode.copyOutResponse:
      return { type: "copyOut", binary: body.readUInt8(0) !== 0 };
    case MessageCode.emptyQuery:
      return emptyQuery;
    case MessageCode.error:
      return { type: "error", error: decodeError(body) };
    case MessageCode.ready:
      return ready[decodeStatus(body)];
    case MessageCode.parseComplete:
    case MessageCode.bindComplete:
    case MessageCode.noData:
    case MessageCode.copyDone:
    case MessageCode.notice:
    case MessageCode.notification:
    case MessageCode.parameterStatus:
      return null;
    default:
      throw new Error(`unexpected message of type ${code}`);
  }
}

/** Bytes of a query message of the simple protocol. */
export function queryLength(text: string): number {
  return Buffer.byteLength(text) + 6;
}

/** Writes a query message of the simple protocol; returns where it ends. */
export function writeQuery(text: string, into: Buffer, offset: number): number {
  return writeText(0x51, text, into, offset);
}

/** Ends a COPY FROM STDIN with an error of this text. */
export function encodeCopyFail(text: string): Buffer {
  const message = Buffer.allocUnsafe(queryLength(text));
  writeText(0x66, text, message, 0);
  return message;
}

/** Messages of the extended protocol that are sent together, and how many commands they are. */
export interface Block {
  readonly bytes: Buffer;
  readonly commands: number;
}

/** A statement of the extended protocol. */
function encodeParse(statement: string): Buffer {
  const message = begin(0x50, 8 + Buffer.byteLength(statement));
  const end = 6 + message.write(`\0${statement}\0`, 5) - 1;
  message.writeUInt16BE(0, end);
  return message;
}

/** Without parameters; values come back in binary format. */
const bind = Buffer.from([0x42, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]);

/** Runs it to its end. */
const execute = Buffer.from([0x45, 0, 0, 0, 9, 0, 0, 0, 0, 0]);

/** Calls a function by its number; the arguments are sent as text, the result comes in binary format. */
export function encodeCall(oid: number, values: readonly (string | null)[]): Buffer {
  const bytes = values.reduce((sum, value) => sum + 4 + Buffer.byteLength(value ?? ""), 0);
  const message = begin(0x46, 14 + bytes);
  message.writeUInt32BE(oid, 5);
  message.writeUInt16BE(0, 9);
  message.writeUInt16BE(values.length, 11);
  let end = 13;
  for (const value of values) {
    const length = value === null ? -1 : message.write(value, end + 4);
    message.writeInt32BE(length, end);
    end += 4 + Math.max(0, length);
  }
  message.writeUInt16BE(1, end);
  return message;
}

/** Bind, Describe and Execute of a statement without parameters, whose values come as text. */
const bindDescribeExecute = Buffer.concat([
  Buffer.from([0x42, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0]),
  Buffer.from([0x44, 0, 0, 0, 6, 0x50, 0]),
  execute,
]);

/** A statement of the extended protocol that is answered as a query is. */
export function encodeStatement(text: string): Buffer {
  return Buffer.concat([encodeParse(text), bindDescribeExecute]);
}

/** One command of the extended protocol, without parameters. */
export function encodeCommand(command: string): Buffer {
  return Buffer.concat([encodeParse(command), bind, execute]);
}

/** Ends what a failed guard makes the server skip; answered by `ready`. */
export const sync = Buffer.from([0x53, 0, 0, 0, 4]);

/** Makes the server send what it has answered so far. */
export const flush = Buffer.from([0x48, 0, 0, 0, 4]);

function begin(code: number, length: number): Buffer {
  const message = Buffer.allocUnsafe(length + 1);
  message[0] = code;
  writeLength(length, message, 1);
  return message;
}

function writeText(code: number, text: string, into: Buffer, offset: number): number {
  const end = offset + 5 + into.write(text, offset + 5);
  into[offset] = code;
  writeLength(end - offset, into, offset + 1);
  into[end] = 0;
  return end + 1;
}

/** Without the checks of Buffer's own. */
function writeLength(length: number, into: Buffer, offset: number): void {
  into[offset] = length >>> 24;
  into[offset + 1] = length >>> 16;
  into[offset + 2] = length >>> 8;
  into[offset + 3] = length;
}

const ready = {
  I: { type: "ready", status: "I" },
  T: { type: "ready", status: "T" },
  E: { type: "ready", status: "E" },
} as const satisfies Record<TransactionStatus, ServerMessage>;

function decodeStatus(body: Buffer): TransactionStatus {
  const status = String.fromCharCode(body.readUInt8(0));
  if (status === "I" || status === "T" || status === "E") return status;
  throw new Error(`unknown transaction status ${JSON.stringify(status)}`);
}

/** The first column of a row. */
export function firstColumn(body: Buffer): Buffer | null {
  return valueAt(2, body);
}

/** What a called function returned. */
export function callResult(body: Buffer): Buffer | null {
  return valueAt(0, body);
}

function valueAt(offset: number, body: Buffer): Buffer | null {
  const length = body.readInt32BE(offset);
  return length === -1 ? null : body.subarray(offset + 4, offset + 4 + length);
}

/** From 1970 to 2000, the epoch of the server's binary format. */
const epochMs = 946_684_800_000;

/** The second that was last written, and its text up to the point: most times are of the same one. */
const written = { second: NaN, text: "" };

/** A timestamptz in binary format, in µs since 2000. */
export function decodeMicroseconds(bytes: Buffer): number {
  return bytes.readInt32BE(0) * 2 ** 32 + bytes.readUInt32BE(4);
}

/** A timestamptz in µs since 2000, as ISO 8601 text in UTC with microseconds. */
export function timestampText(us: number): string {
  const second = Math.floor(us / 1e6);
  if (second !== written.second) {
    written.second = second;
    written.text = new Date(second * 1000 + epochMs).toISOString().slice(0, 20);
  }
  return `${written.text}${String(us - second * 1e6).padStart(6, "0")}Z`;
}

function decodeDataRow(body: Buffer): ServerMessage {
  const count = body.readUInt16BE(0);
  const values: (string | null)[] = [];
  let offset = 2;
  for (let index = 0; index < count; index++) {
    const length = body.readInt32BE(offset);
    offset += 4;
    if (length === -1) {
      values.push(null);
      continue;
    }
    const value = body.toString("utf8", offset, offset + length);
    // Only an invalid byte, or the character itself, comes out as U+FFFD.
    if (value.includes("\u{fffd}") && !isUtf8(body.subarray(offset, offset + length))) {
      return unreadableEncoding;
    }
    values.push(value);
    offset += length;
  }
  return { type: "dataRow", values };
}

function decodeColumns(body: Buffer): FieldDescription[] {
  const count = body.readUInt16BE(0);
  const columns: FieldDescription[] = [];
  let offset = 2;
  for (let index = 0; index < count; index++) {
    const end = body.indexOf(0, offset);
    columns.push({
      name: decodeText(body.subarray(offset, end)),
      typeOid: body.readUInt32BE(end + 7),
      binary: body.readUInt16BE(end + 17) !== 0,
    });
    offset = end + 19;
  }
  return columns;
}

/** The fields are a byte that names them and text that ends with NUL; the last may be cut off. */
function decodeError(body: Buffer): ServerError {
  const fields = new Map<string, string>();
  let offset = 0;
  while (offset < body.length && body[offset] !== 0) {
    const terminator = body.indexOf(0, offset + 1);
    const end = terminator === -1 ? body.length : terminator;
    fields.set(
      String.fromCharCode(body.readUInt8(offset)),
      decodeText(body.subarray(offset + 1, end)),
    );
    offset = end + 1;
  }
  const optional = (key: keyof ServerError, field: string): Partial<ServerError> => {
    const value = fields.get(field);
    return value === undefined ? {} : { [key]: value };
  };
  return {
    severity: fields.get("V") ?? fields.get("S") ?? "ERROR",
    code: fields.get("C") ?? "XX000",
    message: fields.get("M") ?? "missing error text",
    ...optional("detail", "D"),
    ...optional("hint", "H"),
    ...optional("position", "P"),
    ...optional("internalPosition", "p"),
    ...optional("internalQuery", "q"),
    ...optional("where", "W"),
  };
}

/** Names and errors must always be readable: bytes that are no UTF-8 become question marks. */
function decodeText(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString();
  return bytes.toString("latin1").replaceAll(/[^\0-\x7f]/g, "?");
}
