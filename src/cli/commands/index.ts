import type { Command } from "commander";
import type { RunCommand } from "../support/options.js";

type Register = (program: Command, run: RunCommand) => void;

/**
 * For each command, a function that loads its code. The order is that of the help. A command is loaded only if it is
 * called, because loading all of them takes several times as long as most commands run.
 */
const commands: Readonly<Record<string, () => Promise<Register>>> = {
  start: async () => (await import("./start.js")).registerStart,
  check: async () => (await import("./check.js")).registerCheck,
  init: async () => (await import("./init.js")).registerInit,
  status: async () => (await import("./status.js")).registerStatus,
  list: async () => (await import("./list.js")).registerList,
  show: async () => (await import("./show.js")).registerShow,
  next: async () => (await import("./next.js")).registerNext,
  add: async () => (await import("./add.js")).registerAdd,
  stop: async () => (await import("./changeTasks.js")).registerStop,
  retry: async () => (await import("./changeTasks.js")).registerRetry,
  "run-now": async () => (await import("./changeTasks.js")).registerRunNow,
  delete: async () => (await import("./changeTasks.js")).registerDelete,
  pause: async () => (await import("./pauseResume.js")).registerPause,
  resume: async () => (await import("./pauseResume.js")).registerResume,
  "accept-copy": async () => (await import("./acceptCopy.js")).registerAcceptCopy,
  prune: async () => (await import("./prune.js")).registerPrune,
  groups: async () => (await import("./groups.js")).registerGroups,
  watch: async () => (await import("./watch.js")).registerWatch,
  why: async () => (await import("./why.js")).registerWhy,
  doctor: async () => (await import("./doctor.js")).registerDoctor,
  completion: async () => (await import("./completion.js")).registerCompletion,
  manual: async () => (await import("./manual.js")).registerManual,
  "complete-values": async () => (await import("./completeValues.js")).registerCompleteValues,
};

/** Commands whose output describes all commands. */
const describingCommands = ["completion", "manual"];

/**
 * Registers the command that `name` calls, or all commands if it calls none: the help lists them, and an unknown name
 * gets suggestions.
 */
export async function registerCommands(program: Command, name: string | undefined, run: RunCommand): Promise<void> {
  if (name === "--version" || name === "-V") return;
  const isAlone = name !== undefined && Object.hasOwn(commands, name) && !describingCommands.includes(name);
  const loaders = Object.entries(commands).filter(([each]) => !isAlone || each === name);
  for (const register of await Promise.all(loaders.map(([, load]) => load()))) register(program, run);
}
