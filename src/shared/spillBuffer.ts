import { closeSync, openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** What all stores of a thread keep in memory together, in bytes; what is beyond goes to files. */
export const memoryShare = 32 << 20;

/** Of this thread's stores: what they have in memory, and the most of it that there was, in bytes. */
const memory = { held: 0, peak: 0, complained: false };

/** What the stores of this thread have in memory now, and the most of it that there was, in bytes. */
export function storedInMemory(): { readonly held: number; readonly peak: number } {
  return { held: memory.held, peak: memory.peak };
}

/**
 * Bytes that come piece by piece. They are in memory for as long as the thread's share lasts, and from
 * then on in a file that has no name any more: nobody else can open it, and it goes with the process.
 *
 * Whoever has a store takes or drops what is in it, else its part of the share is lost.
 */
export class SpillBuffer {
  #pieces: Buffer[] = [];
  #inMemory = 0;
  #file: number | null = null;
  #inFile = 0;

  get length(): number {
    return this.#inMemory + this.#inFile;
  }

  /** @param bytes the store's own from now on */
  add(bytes: Buffer): void {
    if (this.#file === null && memory.held + bytes.length > memoryShare)
      this.#file = openNameless();
    if (this.#file === null || !this.#write(this.#file, bytes)) this.#keep(bytes);
  }

  /** A copy of all that is in it, in memory of its own. */
  read(): Buffer<ArrayBuffer> {
    const all = Buffer.allocUnsafeSlow(this.length);
    let end = 0;
    for (const piece of this.#pieces) end += piece.copy(all, end);
    for (let at = 0; at < this.#inFile && this.#file !== null;) {
      const count = readSync(this.#file, all, end + at, this.#inFile - at, at);
      if (count === 0) throw new Error("a file that nobody else can open was cut off");
      at += count;
    }
    return all;
  }

  /** As `read`; nothing is left in it. */
  take(): Buffer<ArrayBuffer> {
    try {
      return this.read();
    } finally {
      this.drop();
    }
  }

  drop(): void {
    memory.held -= this.#inMemory;
    this.#pieces = [];
    this.#inMemory = 0;
    this.#inFile = 0;
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }

  #keep(bytes: Buffer): void {
    this.#pieces.push(bytes);
    this.#inMemory += bytes.length;
    memory.held += bytes.length;
    memory.peak = Math.max(memory.peak, memory.held);
  }

  /** False when there is no room: what is in the file by then is put back into memory. */
  #write(file: number, bytes: Buffer): boolean {
    try {
      for (let at = 0; at < bytes.length;) {
        at += writeSync(file, bytes, at, bytes.length - at, this.#inFile + at);
      }
    } catch (error) {
      complain(error);
      const all = this.read();
      this.drop();
      this.#keep(all);
      return false;
    }
    this.#inFile += bytes.length;
    return true;
  }
}

/** Null where none can be made. */
function openNameless(): number | null {
  const path = join(tmpdir(), `pg-task-${crypto.randomUUID()}`);
  try {
    const file = openSync(path, "wx+", 0o600);
    unlinkSync(path);
    return file;
  } catch (error) {
    complain(error);
    return null;
  }
}

/** Once: a task is not to fail for it, but more memory is used than there should be. */
function complain(error: unknown): void {
  if (memory.complained) return;
  memory.complained = true;
  const reason = error instanceof Error ? error.message : String(error);
  process.emitWarning(`large outputs stay in memory, since no file can hold them: ${reason}`);
}
