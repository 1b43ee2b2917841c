import { join } from "node:path";

/** Absolute path of a file or folder of this project. */
export const projectPath = (...names: readonly string[]): string => join(import.meta.dirname, "../../..", ...names);

/** The compiled command-line program. */
export const bin = projectPath("dist/src/cli/bin.js");
