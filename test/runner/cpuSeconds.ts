import { readFileSync } from "node:fs";

const clockTicksPerSecond = 100;

/** Returns the CPU time of this process, and of those of its child processes that have ended, in s. */
export function cpuSeconds(): number {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ")[1]?.split(" ") ?? [];
  const children = (Number(fields[13]) + Number(fields[14])) / clockTicksPerSecond;
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6 + children;
}
