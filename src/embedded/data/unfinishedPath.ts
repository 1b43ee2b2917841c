import { randomBytes } from "node:crypto";
import { readdir, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { isAlive } from "./lockFile.js";

/** Returns a temporary path next to `final`, to be renamed to it. */
export function unfinishedPath(final: string): string {
  return `${prefix(final)}${process.pid}-${randomBytes(4).toString("hex")}`;
}

/** Processes of a killed start may go on writing for a moment: retries for about 3 s. */
const retries = { maxRetries: 10, retryDelay: 50 };

/** Removes what killed starts have left unfinished next to `final`. */
export async function removeUnfinished(final: string): Promise<void> {
  const start = basename(prefix(final));
  for (const name of await readdir(dirname(final))) {
    const pid = Number(name.slice(start.length).split("-")[0]);
    if (!name.startsWith(start) || !Number.isInteger(pid) || (await isAlive(pid))) continue;
    await rm(join(dirname(final), name), {
      recursive: true,
      force: true,
      ...retries,
    });
  }
}

function prefix(final: string): string {
  return join(dirname(final), `.${basename(final)}.unfinished-`);
}
