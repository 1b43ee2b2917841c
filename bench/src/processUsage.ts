import { readFile } from "node:fs/promises";

/** Resident memory of a process, in kB. Linux only. */
export async function residentKb(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const found = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
  if (found === undefined) throw new Error(`expected VmRSS of process ${pid}, got ${status}`);
  return Number(found);
}

/** Time that a process with one thread has spent on a core, in ms. Linux only. */
export async function coreMsOfThread(pid: number): Promise<number> {
  const spent = (await readFile(`/proc/${pid}/schedstat`, "utf8")).split(" ")[0];
  return Number(spent) / 1e6;
}

/** Time that all threads of a process have spent on cores, in ms, by ticks of 10 ms. Linux only. */
export async function coreMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  // What comes before may hold spaces; user and system time are the 14th and 15th field.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}
