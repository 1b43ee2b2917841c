import { randomBytes } from "node:crypto";
import { readdir, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { isAlive } from "../isAlive.js";

/** A path beside `final`, for what becomes `final` by a rename when it is whole. */
export function unfinishedPath(final: string): string {
  return `${prefix(final)}${process.pid}-${randomBytes(4).toString("hex")}`;
}

/** What was killed with its start may take a moment to stop writing: some 3 s at most are waited. */
const patience = { maxRetries: 10, retryDelay: 50 };

/** Removes what starts that were killed half-way left beside `final`. */
export async function removeUnfinished(final: string): Promise<void> {
  const start = basename(prefix(final));
  for (const name of await readdir(dirname(final))) {
    const pid = Number(name.slice(start.length).split("-")[0]);
    if (!name.startsWith(start) || !Number.isInteger(pid) || (await isAlive(pid))) continue;
    await rm(join(dirname(final), name), {
      recursive: true,
      force: true,
      ...patience,
    });
  }
}

function prefix(final: string): string {
  return join(dirname(final), `.${basename(final)}.unfinished-`);
}
