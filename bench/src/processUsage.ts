import { readdir, readFile } from "node:fs/promises";

/** Returns the resident memory of a process, in kB. Linux only. */
export async function residentKb(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const found = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
  if (found === undefined) throw new Error(`expected VmRSS of process ${pid}, got ${status}`);
  return Number(found);
}

/** Returns the CPU time of a thread, or of a process that has only one thread, in ms. Linux only. */
export async function coreMsOfThread(pid: number): Promise<number> {
  const spent = (await readFile(`/proc/${pid}/schedstat`, "utf8")).split(" ")[0];
  return Number(spent) / 1e6;
}

export interface ThreadUsage {
  /** The name by which the operating system knows the thread, up to 15 bytes. Node sets it since version 24. */
  readonly name: string;
  readonly coreMs: number;
}

/** Returns the CPU time of each thread of a process, by thread id. The main thread's id is the pid. */
export async function coreMsOfThreads(pid: number): Promise<Map<number, ThreadUsage>> {
  const threads = (await readdir(`/proc/${pid}/task`)).map(Number);
  const used = await Promise.all(
    threads.map(async (thread) => ({
      name: (await readFile(`/proc/${pid}/task/${thread}/comm`, "utf8")).trim(),
      coreMs: await coreMsOfThread(thread),
    })),
  );
  return new Map(threads.flatMap((thread, i) => (used[i] === undefined ? [] : [[thread, used[i]]])));
}

/** Returns the CPU time of all threads of a process together, in ms, with a resolution of 10 ms. Linux only. */
export async function coreMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  // The second field is in parentheses and may contain spaces. User and system time are the 14th and 15th fields.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** Returns the processes that the main thread of a process has started. Linux only. */
export async function childrenOf(pid: number): Promise<number[]> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8");
  return children.split(" ").filter(Boolean).map(Number);
}
