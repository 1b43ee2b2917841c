import { spawnSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { installedPackage } from "../../src/embedded/binaries/installedPackage.js";

/** The folder whose package-lock.json lists the packages of the matrix, and into which they are installed. */
const matrixFolder = fileURLToPath(new URL("../../../test/matrix/", import.meta.url));

/** An npm package that contains a major version of PostgreSQL or of Node.js. */
export interface Version {
  readonly major: string;
  readonly version: string;
  readonly folder: string;
}

/** Returns the packages of the lock file whose names begin with `postgres-` or `node-`, oldest major version first. */
export async function lockedVersions(kind: "postgres" | "node"): Promise<Version[]> {
  const lock: { packages: Readonly<Record<string, { version?: string }>> } = await readJson(
    join(matrixFolder, "package-lock.json"),
  );
  return Object.entries(lock.packages)
    .flatMap(([path, { version = "" }]) => {
      const major = path.split(`node_modules/${kind}-`)[1];
      return major === undefined ? [] : [{ major, version, folder: join(matrixFolder, path) }];
    })
    .toSorted((a, b) => Number(a.major) - Number(b.major));
}

/** Returns the version of pg-task's own server, which has no folder in the matrix. */
export async function bundledServer(): Promise<Version> {
  const { version } = await installedPackage();
  return { major: version.split(".")[0] ?? "", version, folder: "" };
}

/** Installs all packages of the matrix if one of the wanted packages is missing. */
export async function installVersions(wanted: readonly Version[]): Promise<void> {
  const installed = await Promise.all(wanted.map(isInstalled));
  if (installed.every(Boolean)) return;
  const { status, error } = spawnSync("npm", ["ci", "--prefix", matrixFolder], {
    cwd: matrixFolder,
    stdio: "inherit",
  });
  if (status !== 0) throw new Error("the matrix cannot be installed", { cause: error });
}

async function isInstalled({ folder, version }: Version): Promise<boolean> {
  try {
    const manifest: { version: string } = await readJson(join(folder, "package.json"));
    return manifest.version === version;
  } catch {
    return false;
  }
}

async function readJson<T>(file: string): Promise<T> {
  const content: T = JSON.parse(await readFile(file, "utf8"));
  return content;
}

/** @throws Error if the matrix lacks a requested major version */
export function selectVersions(all: readonly Version[], majors: string | undefined): Version[] {
  if (majors === undefined) return [];
  return majors.split(",").map((major) => {
    const found = all.find((each) => each.major === major);
    if (found !== undefined) return found;
    throw new Error(`unknown version ${major}, expected some of ${all.map((each) => each.major).join(",")}`);
  });
}
