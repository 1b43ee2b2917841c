import { readFileSync } from "node:fs";
import { join } from "node:path";

/** Returns the absolute path of a file or folder of this project. */
export const projectPath = (...names: readonly string[]): string => join(import.meta.dirname, "../../..", ...names);

/** Returns the content of a file of this project. */
export const projectText = (...names: readonly string[]): string => readFileSync(projectPath(...names), "utf8");

/** Path of the compiled command-line program. */
export const bin = projectPath("dist/src/cli/bin.js");
