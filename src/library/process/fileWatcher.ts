import { stat } from "node:fs/promises";
import { sleep } from "../../shared/backoff.js";
import { systemErrorCode } from "../../shared/errors.js";

const pollIntervalMs = 1000;
/** In ms. A file that has changed more recently can be incomplete. */
const settleMs = 200;

/**
 * Polls, which also works where the system's notifications fail: on network file systems, in containers, and with
 * editors that replace the file.
 */
export class FileWatcher {
  readonly #file: string;
  #fingerprint: string;

  private constructor(file: string, fingerprint: string) {
    this.#file = file;
    this.#fingerprint = fingerprint;
  }

  static async create(file: string): Promise<FileWatcher> {
    return new FileWatcher(file, await readFingerprint(file));
  }

  async watch(onChange: () => void, signal: AbortSignal): Promise<void> {
    while (await sleep(pollIntervalMs, signal)) {
      let current = await readFingerprint(this.#file);
      if (current === this.#fingerprint) continue;
      for (let previous = ""; previous !== current; current = await readFingerprint(this.#file)) {
        previous = current;
        if (!(await sleep(settleMs, signal))) return;
      }
      this.#fingerprint = current;
      onChange();
    }
  }
}

/** Returns a text that changes whenever the file is changed, replaced or removed. */
export async function readFingerprint(file: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(" ");
  } catch (error) {
    return systemErrorCode(error);
  }
}
