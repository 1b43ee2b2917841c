import { isUtf8 } from "node:buffer";

/** A column of a result. */
export interface Column {
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

/** What an answer to a simple query consists of; `ready` is always the last. */
export type WireEvent =
  | { readonly type: "rowDescription"; readonly columns: readonly Column[] }
  | { readonly type: "dataRow"; readonly values: readonly (string | null)[] }
  | { readonly type: "copyOut"; readonly binary: boolean }
  | { readonly type: "copyData"; readonly text: string }
  /** A row or COPY data that could not be taken: larger than the wire's limit, or no UTF-8. */
  | { readonly type: "unreadable"; readonly reason: "size" | "encoding" }
  | { readonly type: "commandComplete"; readonly tag: string }
  | { readonly type: "emptyQuery" }
  | { readonly type: "error"; readonly error: ServerError }
  | { readonly type: "ready"; readonly status: TransactionStatus };

/** The server's message types that matter here, by their byte. */
export const MessageCode = {
  notification: 0x41,
  commandComplete: 0x43,
  dataRow: 0x44,
  error: 0x45,
  copyInResponse: 0x47,
  copyOutResponse: 0x48,
  emptyQuery: 0x49,
  notice: 0x4e,
  parameterStatus: 0x53,
  rowDescription: 0x54,
  copyBothResponse: 0x57,
  ready: 0x5a,
  copyDone: 0x63,
  copyData: 0x64,
} as const;

const unreadableEncoding: WireEvent = { type: "unreadable", reason: "encoding" };
const unreadableSize: WireEvent = { type: "unreadable", reason: "size" };
const emptyQuery: WireEvent = { type: "emptyQuery" };

/**
 * The event that a message means, null when it means none to a task.
 *
 * @throws RangeError when the body is shorter than its type demands
 * @throws Error when the type has no place in an answer to a simple query
 */
export function decodeMessage(code: number, body: Buffer, whole: boolean): WireEvent | null {
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
      return { type: "ready", status: decodeStatus(body) };
    case MessageCode.copyDone:
    case MessageCode.notice:
    case MessageCode.notification:
    case MessageCode.parameterStatus:
      return null;
    default:
      throw new Error(`unexpected message of type ${code}`);
  }
}

/** A query message of the simple protocol. */
export function encodeQuery(text: string): Buffer {
  return encodeText(0x51, text);
}

/** Ends a COPY FROM STDIN with an error of this text. */
export function encodeCopyFail(text: string): Buffer {
  return encodeText(0x66, text);
}

function encodeText(code: number, text: string): Buffer {
  const length = Buffer.byteLength(text) + 5;
  const message = Buffer.allocUnsafe(length + 1);
  message.writeUInt8(code, 0);
  message.writeInt32BE(length, 1);
  message.write(text, 5);
  message.writeUInt8(0, length);
  return message;
}

function decodeStatus(body: Buffer): TransactionStatus {
  const status = body.toString();
  if (status === "I" || status === "T" || status === "E") return status;
  throw new Error(`unknown transaction status ${JSON.stringify(status)}`);
}

function decodeDataRow(body: Buffer): WireEvent {
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

function decodeColumns(body: Buffer): Column[] {
  const count = body.readUInt16BE(0);
  const columns: Column[] = [];
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
