import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { access } from "node:fs/promises";
import { promisify } from "node:util";
import { folders } from "./folders.js";

const run = promisify(execFile);
/** The peers ask for it. */
const leastNode = [22, 18] as const;
const ownNode = `${folders.bench}node_modules/node-24/bin/node`;

/** Installs the peers, in `bench`, when they are missing. */
export async function installPeers(say: (line: string) => void): Promise<void> {
  const there = await access(`${folders.bench}node_modules/graphile-worker`).then(
    () => true,
    () => false,
  );
  if (there) return;
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
 * The Node that runs all that is measured, so that nobody has a newer one than the others.
 *
 * @throws Error when this one is too old for the peers and theirs does not run here.
 */
export async function commonNode(withPeers: boolean): Promise<string> {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const [leastMajor, leastMinor] = leastNode;
  const recent = major > leastMajor || (major === leastMajor && minor >= leastMinor);
  if (!withPeers || recent) return process.execPath;
  try {
    await run(ownNode, ["--version"]);
    return ownNode;
  } catch (error) {
    throw new Error(
      `the peers need Node ${leastNode.join(".")} or later: run the bench with one (this is ${process.version}, and ${ownNode} does not run here)`,
      { cause: error },
    );
  }
}
