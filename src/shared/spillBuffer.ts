import { closeSync, openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errorMessage } from "./errors.js";

/** Memory that the spill buffers of a thread use at most, in bytes. Data beyond goes to files. */
export const maxMemoryBytes = 32 << 20;

const memory = { used: 0, peak: 0, hasWarned: false };

export function spillBufferMemory(): { readonly used: number; readonly peak: number } {
  return { used: memory.used, peak: memory.peak };
}

/**
 * Collects bytes: in memory within the thread's limit, and further ones in an unlinked file, which no other process can
 * open. The owner must call `take` or `discard`, or the memory is counted towards the limit for ever.
 */
export class SpillBuffer {
  #pieces: Buffer[] = [];
  #inMemory = 0;
  #file: number | null = null;
  #inFile = 0;

  get length(): number {
    return this.#inMemory + this.#inFile;
  }

  /** `bytes` must not be changed afterwards. */
  append(bytes: Buffer): void {
    if (this.#file === null && memory.used + bytes.length > maxMemoryBytes) this.#file = openUnlinkedFile();
    if (this.#file === null || !this.#write(this.#file, bytes)) this.#keep(bytes);
  }

  read(): Buffer<ArrayBuffer> {
    const all = Buffer.allocUnsafeSlow(this.length);
    let end = 0;
    for (const piece of this.#pieces) end += piece.copy(all, end);
    for (let at = 0; at < this.#inFile && this.#file !== null;) {
      const count = readSync(this.#file, all, end + at, this.#inFile - at, at);
      if (count === 0) throw new Error("temporary file was truncated");
      at += count;
    }
    return all;
  }

  take(): Buffer<ArrayBuffer> {
    try {
      return this.read();
    } finally {
      this.discard();
    }
  }

  discard(): void {
    memory.used -= this.#inMemory;
    this.#pieces = [];
    this.#inMemory = 0;
    this.#inFile = 0;
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }

  #keep(bytes: Buffer): void {
    this.#pieces.push(bytes);
    this.#inMemory += bytes.length;
    memory.used += bytes.length;
    memory.peak = Math.max(memory.peak, memory.used);
  }

  /** Returns false if the disk is full; the content of the file has then been moved back into memory. */
  #write(file: number, bytes: Buffer): boolean {
    try {
      for (let at = 0; at < bytes.length;) {
        at += writeSync(file, bytes, at, bytes.length - at, this.#inFile + at);
      }
    } catch (error) {
      warnOnce(error);
      const all = this.read();
      this.discard();
      this.#keep(all);
      return false;
    }
    this.#inFile += bytes.length;
    return true;
  }
}

/** Returns null if no such file can be created. */
function openUnlinkedFile(): number | null {
  const path = join(tmpdir(), `pg-task-${crypto.randomUUID()}`);
  try {
    const file = openSync(path, "wx+", 0o600);
    unlinkSync(path);
    return file;
  } catch (error) {
    warnOnce(error);
    return null;
  }
}

/** Without files, no task fails, but the buffers use more memory than the limit allows. */
function warnOnce(error: unknown): void {
  if (memory.hasWarned) return;
  memory.hasWarned = true;
  process.emitWarning(`large outputs stay in memory, temporary file failed: ${errorMessage(error)}`);
}
