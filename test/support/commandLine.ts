import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { cli, cliOnTerminal, onShellTerminal, type CliOptions } from "./cli.js";

/**
 * A command line of pg-task alone, perhaps with what shows its exit code or with programs that read its output. It has
 * nothing else that only a shell understands.
 */
const plain =
  /^(?:npx )?pg-task((?: +(?:"[^"$`\\]*"|'[^']*'|[^\s"'$`\\|;&<>()])+)*)(; echo "exit code \$\?"| \| (.*))?$/;

/** Commands that need the terminal of a process of their own. */
const needsProcess = /^ +(?:start|watch|manual)\b/;

/** Splits the arguments of a command line into words, and removes their quotes. */
const words = (line: string): string[] =>
  (line.match(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g) ?? []).map((word) =>
    word.replaceAll(/"([^"]*)"|'([^']*)'/g, (_, double?: string, single?: string) => double ?? single ?? ""),
  );

/**
 * Runs a command line on a terminal, as a shell does. If it is one of pg-task, pg-task runs in this process.
 *
 * @param options the folder and the environment, in which a shell finds `pg-task` and `npx`
 */
export async function runCommandLine(
  line: string,
  options: CliOptions,
): Promise<{ readonly code: number | null; readonly shown: string }> {
  const [found, args = "", rest = "", readers] = plain.exec(line) ?? [];
  if (found === undefined || needsProcess.test(args)) return await onShellTerminal(line, options);
  if (readers === undefined) {
    const { code, shown } = await cliOnTerminal(words(args), options);
    return rest === "" ? { code, shown } : { code: 0, shown: `${shown}exit code ${code}\n` };
  }
  const { stdout, stderr } = await cli(words(args), options);
  const child = spawn("/bin/sh", ["-c", readers], { env: process.env, stdio: ["pipe", "pipe", "inherit"] });
  // A reader like `head` may end before it has read everything.
  child.stdin.on("error", () => {}).end(stdout);
  return { code: child.exitCode, shown: stderr + (await text(child.stdout)) };
}
