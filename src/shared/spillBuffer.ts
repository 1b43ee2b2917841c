import { closeSync, openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errorMessage } from "./errors.js";

/** Memory that all spill buffers of a thread can use together, in bytes. Data beyond this limit goes to files. */
export const maxMemoryBytes = 32 << 20;

/** Memory that this thread's spill buffers use now, and the most they have used so far, in bytes. */
const memory = { used: 0, peak: 0, hasWarned: false };

export function spillBufferMemory(): { readonly used: number; readonly peak: number } {
  return { used: memory.used, peak: memory.peak };
}

/**
 * Collects bytes. The bytes stay in memory as long as the thread's limit allows. Further bytes go to an unlinked file,
 * which no other process can open and which disappears when this process ends.
 *
 * The owner of a buffer must call `take` or `discard`. Otherwise, the buffer's memory is still counted towards the
 * limit.
 */
export class SpillBuffer {
  #pieces: Buffer[] = [];
  #inMemory = 0;
  #file: number | null = null;
  #inFile = 0;

  get length(): number {
    return this.#inMemory + this.#inFile;
  }

  /**
   * Appends the bytes.
   *
   * @param bytes must not be changed by the caller afterwards
   */
  append(bytes: Buffer): void {
    if (this.#file === null && memory.used + bytes.length > maxMemoryBytes) this.#file = openUnlinkedFile();
    if (this.#file === null || !this.#write(this.#file, bytes)) this.#keep(bytes);
  }

  /** Returns a copy of the content. */
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

  /** Returns the content and empties the buffer. */
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

  /**
   * Writes to the file.
   *
   * @returns false if the disk is full; the content of the file has then been moved back into memory
   */
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

/**
 * Opens a file that has no name.
 *
 * @returns null if no such file can be created
 */
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

/**
 * Warns once per thread. If no file can be used, no task fails, but the buffers use more memory than the limit allows.
 */
function warnOnce(error: unknown): void {
  if (memory.hasWarned) return;
  memory.hasWarned = true;
  process.emitWarning(`large outputs stay in memory, temporary file failed: ${errorMessage(error)}`);
}
