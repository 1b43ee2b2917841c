import { stat } from "node:fs/promises";
import { sleep } from "../../shared/backoff.js";
import { systemErrorCode } from "../../shared/errors.js";

const pollIntervalMs = 1000;
/** In ms. A file that has changed more recently can be incomplete. */
const settleMs = 200;

/**
 * Polls, which also works where the system's notifications fail: on network file systems, in containers, and with
 * editors that replace the file.
 *
 * @param before the fingerprint that the file had before it was read
 */
export async function watchFile(
  file: string,
  before: string,
  onChange: () => void,
  signal: AbortSignal,
): Promise<void> {
  let known = before;
  while (await sleep(pollIntervalMs, signal)) {
    let current = await readFingerprint(file);
    if (current === known) continue;
    for (let previous = ""; previous !== current; current = await readFingerprint(file)) {
      previous = current;
      if (!(await sleep(settleMs, signal))) return;
    }
    known = current;
    onChange();
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
