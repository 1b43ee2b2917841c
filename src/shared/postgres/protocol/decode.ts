import { isUtf8 } from "node:buffer";

export interface FieldDescription {
  readonly name: string;
  readonly typeOid: number;
  readonly binary: boolean;
}

/** An error of the server. Positions are counted in characters from 1. */
export interface ServerError {
  readonly severity: string;
  readonly code: string;
  readonly message: string;
  readonly detail?: string | undefined;
  readonly hint?: string | undefined;
  readonly position?: string | undefined;
  readonly internalPosition?: string | undefined;
  readonly internalQuery?: string | undefined;
  readonly where?: string | undefined;
  readonly routine?: string | undefined;
}

export type TransactionStatus = "I" | "T" | "E";

/**
 * A part of an answer. The answer to a query ends with `ready`, or with `skipped` if the server skipped it. The answer
 * to a guard, a statement or a call ends with `passed` after success, otherwise with `skipped`.
 */
export type ServerMessage =
  | { readonly type: "rowDescription"; readonly columns: readonly FieldDescription[] }
  | { readonly type: "dataRow"; readonly values: readonly (string | null)[] }
  | { readonly type: "copyOut"; readonly binary: boolean }
  | { readonly type: "copyData"; readonly text: string }
  | { readonly type: "announced"; readonly bytes: number }
  /** A row, or COPY data, that is larger than the connection's limit or not valid UTF-8. */
  | { readonly type: "unreadable"; readonly reason: "size" | "encoding" }
  | { readonly type: "commandComplete"; readonly tag: string }
  | { readonly type: "emptyQuery" }
  | { readonly type: "error"; readonly error: ServerError }
  | { readonly type: "ready"; readonly status: TransactionStatus }
  /**
   * The first column of a guard's row, or a call's result, in binary format. `bytes` is valid only during the callback.
   */
  | { readonly type: "value"; readonly bytes: Buffer | null }
  | { readonly type: "passed" }
  | { readonly type: "skipped"; readonly status: TransactionStatus };

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
 * Returns null for a message that pg-task does not need. Throws if the message is malformed or not part of an answer.
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

/** Returns the value whose length is at `offset`: at 0 that of a call's result, at 2 that of a row's first column. */
export function valueAt(offset: 0 | 2, body: Buffer): Buffer | null {
  const length = body.readInt32BE(offset);
  return length === -1 ? null : body.subarray(offset + 4, offset + 4 + length);
}

/** The epoch of PostgreSQL's binary timestamps, 2000-01-01, in ms of Unix time. */
const epochMs = 946_684_800_000;

/** The second that was formatted last: most timestamps fall into the same one as the timestamp before. */
const formatted = { second: NaN, text: "" };

export function decodeMicroseconds(bytes: Buffer): number {
  return bytes.readInt32BE(0) * 2 ** 32 + bytes.readUInt32BE(4);
}

/** Formats µs since 2000-01-01 as ISO 8601 text in UTC with microseconds. */
export function timestampText(us: number): string {
  const second = Math.floor(us / 1e6);
  if (second !== formatted.second) {
    formatted.second = second;
    formatted.text = new Date(second * 1000 + epochMs).toISOString().slice(0, 20);
  }
  return `${formatted.text}${String(us - second * 1e6).padStart(6, "0")}Z`;
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
    // The text contains U+FFFD only if its bytes are invalid or if U+FFFD itself was sent.
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

/** Each field is a type byte followed by NUL-terminated text. The last field can be truncated. */
function decodeError(body: Buffer): ServerError {
  const fields = new Map<string, string>();
  let offset = 0;
  while (offset < body.length && body[offset] !== 0) {
    const terminator = body.indexOf(0, offset + 1);
    const end = terminator === -1 ? body.length : terminator;
    fields.set(String.fromCharCode(body.readUInt8(offset)), decodeText(body.subarray(offset + 1, end)));
    offset = end + 1;
  }
  return {
    severity: fields.get("V") ?? fields.get("S") ?? "ERROR",
    code: fields.get("C") ?? "XX000",
    message: fields.get("M") ?? "missing error text",
    detail: fields.get("D"),
    hint: fields.get("H"),
    position: fields.get("P"),
    internalPosition: fields.get("p"),
    internalQuery: fields.get("q"),
    where: fields.get("W"),
    routine: fields.get("R"),
  };
}

/** Decodes names and errors, which must always be readable. Bytes that are not UTF-8 become question marks. */
function decodeText(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString();
  return bytes.toString("latin1").replaceAll(/[^\0-\x7f]/g, "?");
}
