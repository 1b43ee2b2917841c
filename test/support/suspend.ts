import { readdir, readFile } from "node:fs/promises";

/** Suspends a process by SIGSTOP. Resolves when all its threads have stopped, which takes longer on a busy machine. */
export async function suspend(pid: number): Promise<void> {
  process.kill(pid, "SIGSTOP");
  while (!(await isSuspended(pid)));
}

async function isSuspended(pid: number): Promise<boolean> {
  const threads = await readdir(`/proc/${pid}/task`);
  const stats = await Promise.all(threads.map((thread) => readFile(`/proc/${pid}/task/${thread}/stat`, "utf8")));
  // The state follows the name, which is in parentheses and can contain any character.
  return stats.every((stat) => stat.slice(stat.lastIndexOf(")") + 2).startsWith("T"));
}
