import { readFileSync } from "node:fs";
import { packageFile } from "./packageFile.js";

interface Manifest {
  readonly version: string;
  readonly optionalDependencies: Readonly<Record<string, string>>;
}

export const packageVersion = (): string => readManifest().version;

export const optionalVersion = (name: string): string | undefined => readManifest().optionalDependencies[name];

function readManifest(): Manifest {
  return JSON.parse(readFileSync(packageFile("package.json"), "utf8"));
}
