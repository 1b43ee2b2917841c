import { readFileSync } from "node:fs";

export interface Times {
  /** Wall time, in s. */
  readonly seconds: number;
  /** CPU time of a process and of those of its child processes that have ended, in s. */
  readonly cpuSeconds: number;
}

const clockTicksPerSecond = 100;

/** The times of this process since it has started. */
export function readTimes(): Times {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ")[1]?.split(" ") ?? [];
  const children = (Number(fields[13]) + Number(fields[14])) / clockTicksPerSecond;
  const { user, system } = process.cpuUsage();
  return { seconds: performance.now() / 1000, cpuSeconds: (user + system) / 1e6 + children };
}

let start = readTimes();

/** Lets `timesOfFile` measure from now on. */
export function startFile(): void {
  start = readTimes();
}

export function timesOfFile(): Times {
  const now = readTimes();
  return { seconds: now.seconds - start.seconds, cpuSeconds: now.cpuSeconds - start.cpuSeconds };
}
