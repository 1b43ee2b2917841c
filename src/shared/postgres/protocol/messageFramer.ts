import { SpillBuffer } from "../../spillBuffer.js";

/** `body` is valid only during the call. `whole` is false if it was truncated at the limit. */
type FrameHandler = (code: number, body: Buffer, whole: boolean) => void;

const headerBytes = 5;
const noBody = Buffer.alloc(0);

/** Bodies longer than this, in bytes, are collected in a SpillBuffer. */
const largeBody = 1 << 20;

/** Splits the server's byte stream into messages, and keeps at most the first `limit` bytes of each. */
export class MessageFramer {
  readonly #limit: () => number;
  readonly #handle: FrameHandler;
  readonly #announce: (code: number, bytes: number) => void;
  readonly #header = Buffer.alloc(headerBytes);
  #headerLength = 0;
  /** The body of the incomplete message; null between messages. */
  #body: Buffer | SpillBuffer | null = null;
  #whole = true;
  #kept = 0;
  #bodyBytes = 0;
  #missing = 0;

  /** @param announce called at the beginning of a large body */
  constructor(limit: () => number, handle: FrameHandler, announce: (code: number, bytes: number) => void = () => {}) {
    this.#limit = limit;
    this.#handle = handle;
    this.#announce = announce;
  }

  /** @throws Error if the stream is not the PostgreSQL protocol, and any error that the handler throws */
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

  /** Returns the offset in the chunk at which parsing continues. */
  #begin(header: Buffer, headerOffset: number, offset: number, chunk: Buffer): number {
    const code = header[headerOffset] ?? 0;
    const length = readLength(header, headerOffset + 1) - 4;
    if (length < 0) throw new Error(`message of type ${code} with a length below 4`);
    const end = offset + length;
    const limit = this.#limit();
    if (end <= chunk.length && length <= limit) {
      // Most messages have no body, and subarray is the most expensive step here.
      this.#handle(code, length === 0 ? noBody : chunk.subarray(offset, end), true);
      return end;
    }
    this.#header[0] = code;
    const kept = Math.min(length, limit);
    this.#body = kept > largeBody ? new SpillBuffer() : Buffer.allocUnsafe(kept);
    this.#bodyBytes = kept;
    this.#whole = length <= limit;
    this.#kept = 0;
    this.#missing = length;
    if (kept > largeBody) this.#announce(code, length);
    return offset;
  }

  drop(): void {
    if (this.#body instanceof SpillBuffer) this.#body.discard();
    this.#body = null;
    this.#headerLength = 0;
  }

  #continueBody(body: Buffer | SpillBuffer, chunk: Buffer, offset: number): number {
    const end = Math.min(chunk.length, offset + this.#missing);
    this.#missing -= end - offset;
    const keptEnd = Math.min(end, offset + this.#bodyBytes - this.#kept);
    if (!(body instanceof SpillBuffer)) chunk.copy(body, this.#kept, offset, keptEnd);
    // The bytes are copied because the stream reuses the chunk's memory.
    else if (keptEnd > offset) body.append(Buffer.from(chunk.subarray(offset, keptEnd)));
    this.#kept += keptEnd - offset;
    if (this.#missing === 0) {
      this.#body = null;
      const all = body instanceof SpillBuffer ? body.take() : body;
      this.#handle(this.#header.readUInt8(0), all, this.#whole);
    }
    return end;
  }
}

/** Faster than Buffer's method, which checks its arguments. */
function readLength(bytes: Buffer, offset: number): number {
  const high = ((bytes[offset] ?? 0) << 24) | ((bytes[offset + 1] ?? 0) << 16);
  return (high | ((bytes[offset + 2] ?? 0) << 8) | (bytes[offset + 3] ?? 0)) >>> 0;
}
