import { readFile } from "node:fs/promises";
import { systemErrorCode } from "../shared/errors.js";

/** Whether a process with this id is running. Zombies (ended processes that still have an id) do not count. */
export async function isAlive(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (systemErrorCode(error) === "ESRCH") return false;
  }
  if (process.platform !== "linux") return true;
  try {
    // In this file, the process name precedes the state and may contain spaces and parentheses.
    const state = (await readFile(`/proc/${pid}/stat`, "utf8")).replace(/^.*\) /s, "")[0];
    return state !== "Z" && state !== "X";
  } catch {
    return false;
  }
}
