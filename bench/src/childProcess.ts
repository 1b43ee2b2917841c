import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";

const patienceMs = 60_000;

/** Resolves with the first message that `wanted` accepts; rejects if the child ends first. */
export function message<Message>(
  child: ChildProcess,
  wanted: (message: unknown) => message is Message,
): Promise<Message> {
  return new Promise((resolve, reject) => {
    const listen = (received: unknown): void => {
      if (!wanted(received)) return;
      leave();
      resolve(received);
    };
    const fail = (code: number | null, signal: string | null): void => {
      leave();
      reject(new Error(`the process under measurement ended with ${code ?? signal}`));
    };
    const leave = (): void => {
      child.off("message", listen);
      child.off("exit", fail);
    };
    child.on("message", listen);
    child.once("exit", fail);
  });
}

/** Terminates the child and waits until it has ended. Kills it if it has not ended after `patienceMs`. */
export async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), patienceMs);
  await ended;
  clearTimeout(timer);
}

/**
 * Kills the child when this process ends, for whatever reason. Otherwise the child would continue to run.
 *
 * @param folder a folder that is removed at the same time
 */
export function endWithUs(child: ChildProcess, folder?: string): void {
  const kill = (): void => {
    child.kill("SIGKILL");
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  };
  process.once("exit", kill);
  child.once("exit", () => process.off("exit", kill));
}
