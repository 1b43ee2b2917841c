import { readFileSync } from "node:fs";
import { packageFile } from "./packageFile.js";

interface Manifest {
  readonly version: string;
  readonly optionalDependencies: Readonly<Record<string, string>>;
}

/** Returns the version of this package. */
export const packageVersion = (): string => readManifest().version;

/** Returns the version of an optional dependency that this package wants, or undefined if it is none. */
export const optionalVersion = (name: string): string | undefined => readManifest().optionalDependencies[name];

function readManifest(): Manifest {
  return JSON.parse(readFileSync(packageFile("package.json"), "utf8"));
}
