import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { access } from "node:fs/promises";
import { promisify } from "node:util";
import { folders } from "./folders.js";

const run = promisify(execFile);
/** The minimum version of Node (major, minor) that the peers need. The peers are graphile-worker and pg-boss. */
const minNode = [22, 18] as const;
const ownNode = `${folders.bench}node_modules/node-24/bin/node`;

/** Installs the peers in `bench` if they are missing. */
export async function installPeers(say: (line: string) => void): Promise<void> {
  const isInstalled = await access(`${folders.bench}node_modules/graphile-worker`).then(
    () => true,
    () => false,
  );
  if (isInstalled) return;
  say("installing the peers into bench/node_modules");
  const install = spawn("npm", ["ci", "--no-audit", "--no-fund"], {
    cwd: folders.bench,
    stdio: ["ignore", "ignore", "inherit"],
  });
  await once(install, "exit");
  const { exitCode } = install;
  if (exitCode !== 0) throw new Error(`npm ci in ${folders.bench} ended with ${exitCode}`);
}

/**
 * Returns the path of the Node that runs all measured programs, so that all of them use the same version.
 *
 * @throws Error if the current Node is too old for the peers, and the Node installed with them does not run on this
 *   machine
 */
export async function commonNode(withPeers: boolean): Promise<string> {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const [minMajor, minMinor] = minNode;
  const recent = major > minMajor || (major === minMajor && minor >= minMinor);
  if (!withPeers || recent) return process.execPath;
  try {
    await run(ownNode, ["--version"]);
    return ownNode;
  } catch (error) {
    throw new Error(
      `the peers need Node ${minNode.join(".")} or later: run the bench with one (this is ${process.version}, and ${ownNode} does not run here)`,
      { cause: error },
    );
  }
}
