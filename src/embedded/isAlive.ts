import { readFile } from "node:fs/promises";
import { errorCode } from "./systemError.js";

/** Whether a process of this id runs; one that has ended and only waits to be collected does not. */
export async function isAlive(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (errorCode(error) === "ESRCH") return false;
  }
  if (process.platform !== "linux") return true;
  try {
    // The name before the state may itself contain blanks and parentheses.
    const state = (await readFile(`/proc/${pid}/stat`, "utf8")).replace(/^.*\) /s, "")[0];
    return state !== "Z" && state !== "X";
  } catch {
    return false;
  }
}
