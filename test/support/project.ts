import { join } from "node:path";

/** Path of a file or folder of this project, from its root. */
export const projectPath = (...names: readonly string[]): string =>
  join(import.meta.dirname, "../../..", ...names);

/** The compiled command line. */
export const bin = projectPath("dist/src/cli/bin.js");
