import { randomBytes } from "node:crypto";
import { readdir, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { isAlive } from "./processes.js";

/** A path beside `final`, for what becomes `final` by a rename when it is whole. */
export function unfinishedPath(final: string): string {
  return `${prefix(final)}${process.pid}-${randomBytes(4).toString("hex")}`;
}

/** Removes what starts that were killed half-way left beside `final`. */
export async function removeUnfinished(final: string): Promise<void> {
  const start = basename(prefix(final));
  for (const name of await readdir(dirname(final))) {
    const pid = Number(name.slice(start.length).split("-")[0]);
    if (!name.startsWith(start) || !Number.isInteger(pid) || (await isAlive(pid))) continue;
    await rm(join(dirname(final), name), { recursive: true, force: true });
  }
}

function prefix(final: string): string {
  return join(dirname(final), `.${basename(final)}.unfinished-`);
}
