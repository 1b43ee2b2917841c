import assert from "node:assert/strict";
import { cli } from "./cli.js";

/** One line of the output of `pg-task doctor`. `remedy` is `\\N` if there is none. */
export interface DoctorLine {
  readonly level: string;
  readonly name: string;
  readonly text: string;
  readonly remedy: string;
}

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
