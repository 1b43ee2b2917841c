import assert from "node:assert/strict";
import { cli } from "./cli.js";

/** What `pg-task doctor` prints of one thing; `remedy` is `\\N` where there is none. */
export interface DoctorLine {
  readonly level: string;
  readonly name: string;
  readonly text: string;
  readonly remedy: string;
}

/** What the doctor says, and with which exit code. */
export async function doctor(
  env: Readonly<Record<string, string>>,
  cwd?: string,
): Promise<{ code: number | null; lines: DoctorLine[] }> {
  const { code, stdout, stderr } = await cli(["doctor"], {
    env,
    ...(cwd === undefined ? {} : { cwd }),
  });
  assert.equal(stderr, "");
  const lines = stdout
    .trimEnd()
    .split("\n")
    .map((line) => line.split("\t"))
    .map(([level = "", , name = "", text = "", remedy = ""]) => ({ level, name, text, remedy }));
  return { code, lines };
}
