import { SpillBuffer } from "../../spillBuffer.js";

/**
 * Gets each message of the server: its type byte and its body, which is valid only during the call.
 * `whole` is false when the body was larger than the limit and only its beginning is there.
 */
export type FrameHandler = (code: number, body: Buffer, whole: boolean) => void;

const headerBytes = 5;
const noBody = Buffer.alloc(0);

/** A body of more bytes than this is put together in a store. */
const largeBody = 1 << 20;

/**
 * Cuts the server's byte stream into its messages, in bounded memory: of a message larger than
 * `limit` bytes, which is asked anew for each, only the first `limit` are kept.
 */
export class MessageFramer {
  readonly #limit: () => number;
  readonly #handle: FrameHandler;
  readonly #announce: (code: number, bytes: number) => void;
  readonly #header = Buffer.alloc(headerBytes);
  #headerLength = 0;
  /** The body that is being put together, null between messages. */
  #body: Buffer | SpillBuffer | null = null;
  #whole = true;
  #kept = 0;
  /** Of how many bytes the body will consist, and how many have not come. */
  #room = 0;
  #missing = 0;

  /** @param announce is told of a large body when it begins to come */
  constructor(
    limit: () => number,
    handle: FrameHandler,
    announce: (code: number, bytes: number) => void = () => {},
  ) {
    this.#limit = limit;
    this.#handle = handle;
    this.#announce = announce;
  }

  /** @throws Error when the stream is no PostgreSQL protocol, and whatever the handler throws. */
  push(chunk: Buffer): void {
    let offset = 0;
    while (offset < chunk.length) {
      if (this.#body !== null) offset = this.#continueBody(this.#body, chunk, offset);
      else if (this.#headerLength === 0 && chunk.length - offset >= headerBytes) {
        offset = this.#begin(chunk, offset, offset + headerBytes, chunk);
      } else offset = this.#continueHeader(chunk, offset);
    }
  }

  #continueHeader(chunk: Buffer, offset: number): number {
    const end = Math.min(chunk.length, offset + headerBytes - this.#headerLength);
    this.#headerLength += chunk.copy(this.#header, this.#headerLength, offset, end);
    if (this.#headerLength < headerBytes) return end;
    this.#headerLength = 0;
    return this.#begin(this.#header, 0, end, chunk);
  }

  /** Starts the message whose header is at `headerOffset` and whose body begins at `offset`. */
  #begin(header: Buffer, headerOffset: number, offset: number, chunk: Buffer): number {
    const code = header[headerOffset] ?? 0;
    const length = readLength(header, headerOffset + 1) - 4;
    if (length < 0) throw new Error(`message of type ${code} with a length below 4`);
    const end = offset + length;
    const limit = this.#limit();
    if (end <= chunk.length && length <= limit) {
      // Most messages have none, and cutting it out costs more than the rest.
      this.#handle(code, length === 0 ? noBody : chunk.subarray(offset, end), true);
      return end;
    }
    this.#header[0] = code;
    const kept = Math.min(length, limit);
    this.#body = kept > largeBody ? new SpillBuffer() : Buffer.allocUnsafe(kept);
    this.#room = kept;
    this.#whole = length <= limit;
    this.#kept = 0;
    this.#missing = length;
    if (kept > largeBody) this.#announce(code, length);
    return offset;
  }

  /** What has come of a message is not wanted any more. */
  drop(): void {
    if (this.#body instanceof SpillBuffer) this.#body.drop();
    this.#body = null;
    this.#headerLength = 0;
  }

  #continueBody(body: Buffer | SpillBuffer, chunk: Buffer, offset: number): number {
    const end = Math.min(chunk.length, offset + this.#missing);
    this.#missing -= end - offset;
    const keptEnd = Math.min(end, offset + this.#room - this.#kept);
    if (!(body instanceof SpillBuffer)) chunk.copy(body, this.#kept, offset, keptEnd);
    // The chunk's memory is the stream's.
    else if (keptEnd > offset) body.add(Buffer.from(chunk.subarray(offset, keptEnd)));
    this.#kept += keptEnd - offset;
    if (this.#missing === 0) {
      this.#body = null;
      const all = body instanceof SpillBuffer ? body.take() : body;
      this.#handle(this.#header.readUInt8(0), all, this.#whole);
    }
    return end;
  }
}

/** Without the checks of Buffer's own. */
function readLength(bytes: Buffer, offset: number): number {
  const high = ((bytes[offset] ?? 0) << 24) | ((bytes[offset + 1] ?? 0) << 16);
  return (high | ((bytes[offset + 2] ?? 0) << 8) | (bytes[offset + 3] ?? 0)) >>> 0;
}
