import { join } from "node:path";

/** Returns the absolute path of a file or folder of this project. */
export const projectPath = (...names: readonly string[]): string => join(import.meta.dirname, "../../..", ...names);

/** Path of the compiled command-line program. */
export const bin = projectPath("dist/src/cli/bin.js");
