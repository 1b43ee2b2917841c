import { stat } from "node:fs/promises";
import { sleep } from "../../shared/backoff.js";
import { errorCode } from "../../shared/config/errorCode.js";

/** How often the file is looked at, in ms. */
const lookEveryMs = 1000;
/** How long a file that changed has to stay as it is, in ms: whoever writes it may not have finished. */
const settleMs = 200;

/**
 * Looks whether a file changed. Asking is dependable where notifications of the system are not: on
 * network file systems, in containers, and with editors that put another file in its place.
 */
export class FileWatch {
  readonly #file: string;
  #seen: string;

  private constructor(file: string, seen: string) {
    this.#file = file;
    this.#seen = seen;
  }

  /** Remembers how the file is now. */
  static async of(file: string): Promise<FileWatch> {
    return new FileWatch(file, await stateOf(file));
  }

  /** Calls `changed` when the file has become another one, or is gone, until `signal` is aborted. */
  async follow(changed: () => void, signal: AbortSignal): Promise<void> {
    while (await sleep(lookEveryMs, signal)) {
      let now = await stateOf(this.#file);
      if (now === this.#seen) continue;
      for (let before = ""; before !== now; now = await stateOf(this.#file)) {
        before = now;
        if (!(await sleep(settleMs, signal))) return;
      }
      this.#seen = now;
      changed();
    }
  }
}

async function stateOf(file: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(" ");
  } catch (error) {
    return errorCode(error);
  }
}
