import { MessageCode, type ServerError } from "./decode.js";

export function queryLength(text: string): number {
  return Buffer.byteLength(text) + 6;
}

export function writeQuery(text: string, into: Buffer, offset: number): number {
  return writeText(0x51, text, into, offset);
}

function encodeCopyFail(text: string): Buffer {
  const message = Buffer.allocUnsafe(queryLength(text));
  writeText(0x66, text, message, 0);
  return message;
}

/** Messages of the extended protocol that are sent together, and the number of commands in these messages. */
export interface Block {
  readonly bytes: Buffer;
  readonly commands: number;
}

export interface Parameters {
  readonly values: readonly (string | null)[];
  /** OIDs of the types of the first parameters. The server infers the types of the others. */
  readonly types: readonly number[];
}

const noParameters: Parameters = { values: [], types: [] };

function encodeParse(statement: string, types: readonly number[] = []): Buffer {
  const message = begin(0x50, 8 + Buffer.byteLength(statement) + 4 * types.length);
  let end = message.writeUInt16BE(types.length, 5 + message.write(`\0${statement}\0`, 5));
  for (const type of types) end = message.writeUInt32BE(type, end);
  return message;
}

/** Bind without parameters, for results in binary format. */
const bind = Buffer.from([0x42, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]);

/** Execute without a row limit. */
const execute = Buffer.from([0x45, 0, 0, 0, 9, 0, 0, 0, 0, 0]);

export function encodeCall(oid: number, values: readonly (string | null)[]): Buffer {
  const message = begin(0x46, 14 + valuesLength(values));
  message.writeUInt32BE(oid, 5);
  message.writeUInt16BE(0, 9);
  message.writeUInt16BE(1, writeValues(values, message, 11));
  return message;
}

const valuesLength = (values: readonly (string | null)[]): number =>
  values.reduce((sum, value) => sum + 4 + Buffer.byteLength(value ?? ""), 0);

function writeValues(values: readonly (string | null)[], into: Buffer, offset: number): number {
  let end = into.writeUInt16BE(values.length, offset);
  for (const value of values) {
    const length = value === null ? -1 : into.write(value, end + 4);
    into.writeInt32BE(length, end);
    end += 4 + Math.max(0, length);
  }
  return end;
}

function encodeBind({ values }: Parameters): Buffer {
  const message = begin(0x42, 12 + valuesLength(values));
  message.writeUInt32BE(0, 5);
  message.writeUInt16BE(0, writeValues(values, message, 9));
  return message;
}

/** Describe for the unnamed portal, and Execute. */
const describeExecute = Buffer.concat([Buffer.from([0x44, 0, 0, 0, 6, 0x50, 0]), execute]);

/** Encodes a statement for the extended protocol. */
export function encodeStatement(text: string, parameters: Parameters = noParameters): Buffer {
  return Buffer.concat([encodeParse(text, parameters.types), encodeBind(parameters), describeExecute]);
}

export function encodeCommand(command: string): Buffer {
  return Buffer.concat([encodeParse(command), bind, execute]);
}

/** Sync: ends the skipping after an error. The server answers with ReadyForQuery. */
export const sync = Buffer.from([0x53, 0, 0, 0, 4]);

/** Flush: makes the server send the answers that it has delayed. */
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

/** Faster than Buffer's method, which checks its arguments. */
function writeLength(length: number, into: Buffer, offset: number): void {
  into[offset] = length >>> 24;
  into[offset + 1] = length >>> 16;
  into[offset + 2] = length >>> 8;
  into[offset + 3] = length;
}

/** A task has no client that could send data to the server. */
const reason = "COPY FROM STDIN is not supported";
const refusal = encodeCopyFail(reason);

/** The server quotes the reason in its error. */
export const isCopyRefusal = ({ message }: Pick<ServerError, "message">): boolean => message.endsWith(reason);

export function copyRefusal(code: number): Buffer | null {
  return code === MessageCode.copyInResponse || code === MessageCode.copyBothResponse ? refusal : null;
}
