import { spawn } from "node:child_process";
import { delimiter, dirname } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** One server on one Node. */
export interface Cell {
  readonly name: string;
  /** Folder of the server's package; null for pg-task's own. */
  readonly postgres: string | null;
  /** Path of the Node executable. */
  readonly node: string;
}

export interface CellResult {
  readonly passed: number;
  readonly failed: number;
  readonly seconds: number;
}

const suite = fileURLToPath(new URL("../run.js", import.meta.url));

/** Runs the suite and forwards its output. A failed run without a failed test counts as one failure. */
export async function runCell(cell: Cell, patterns: readonly string[]): Promise<CellResult> {
  const { TEST_DATABASE_URL: _, TEST_POSTGRES: __, ...env } = process.env;
  const start = performance.now();
  const child = spawn(cell.node, [suite, ...patterns], {
    stdio: ["ignore", "pipe", "inherit"],
    env: {
      ...env,
      // Also for tests that start `node`.
      PATH: `${dirname(cell.node)}${delimiter}${env["PATH"] ?? ""}`,
      ...(cell.postgres === null ? {} : { TEST_POSTGRES: cell.postgres }),
    },
  });
  const counts = new Map<string, number>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    process.stdout.write(`${line}\n`);
    const [, what = "", number] = /^[#ℹ] (pass|fail|cancelled) (\d+)$/.exec(line) ?? [];
    if (number !== undefined) counts.set(what, Number(number));
  });
  const code = await new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (status) => resolve(status ?? 1));
  });
  const failed = (counts.get("fail") ?? 0) + (counts.get("cancelled") ?? 0);
  return {
    passed: counts.get("pass") ?? 0,
    failed: code !== 0 && failed === 0 ? 1 : failed,
    seconds: Math.round((performance.now() - start) / 1000),
  };
}
