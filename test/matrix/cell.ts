import { spawn } from "node:child_process";
import { delimiter, dirname } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** A cell of the matrix: one version of PostgreSQL with one version of Node.js. */
export interface Cell {
  readonly name: string;
  /** Folder of the npm package with the server. Null means pg-task's own server. */
  readonly postgres: string | null;
  /** Path of the Node.js executable. */
  readonly node: string;
}

export interface CellResult {
  readonly passed: number;
  readonly failed: number;
  readonly seconds: number;
}

const suite = fileURLToPath(new URL("../run.js", import.meta.url));

/**
 * Runs the test suite and forwards its output. If the suite fails although no test failed, this counts as one failure.
 */
export async function runCell(cell: Cell, patterns: readonly string[]): Promise<CellResult> {
  const { TEST_DATABASE_URL: _, TEST_POSTGRES: __, ...env } = process.env;
  const start = performance.now();
  const child = spawn(cell.node, [suite, ...patterns], {
    stdio: ["ignore", "pipe", "inherit"],
    env: {
      ...env,
      // PATH must also lead to this Node.js, because some tests start `node`.
      PATH: `${dirname(cell.node)}${delimiter}${env["PATH"] ?? ""}`,
      ...(cell.postgres === null ? {} : { TEST_POSTGRES: cell.postgres }),
    },
  });
  let counts = { passed: 0, failed: 0 };
  createInterface({ input: child.stdout }).on("line", (line) => {
    process.stdout.write(`${line}\n`);
    const [, passed, failed] = /^(\d+) passed, (\d+) failed/.exec(line) ?? [];
    if (passed !== undefined) counts = { passed: Number(passed), failed: Number(failed) };
  });
  const code = await new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (status) => resolve(status ?? 1));
  });
  return {
    passed: counts.passed,
    failed: code !== 0 && counts.failed === 0 ? 1 : counts.failed,
    seconds: Math.round((performance.now() - start) / 1000),
  };
}
