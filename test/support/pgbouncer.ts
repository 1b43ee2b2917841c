import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { access, chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { promisify } from "node:util";
import { freePort } from "../../src/embedded/port.js";
import { serverTarget } from "./database.js";

const run = promisify(execFile);
const debians = "/usr/sbin/pgbouncer";
/** It refuses to run as root. */
const nobody = 65534;
const isRoot = process.getuid?.() === 0;

export type PoolMode = "session" | "transaction" | "statement";

export interface PgBouncer {
  readonly port: number;
}

/** Debian's package is installed where it is missing and may be; null where there is no way to it. */
export async function findPgBouncer(): Promise<string | null> {
  const installed = await firstThere([debians, "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"]);
  if (installed !== null || !isRoot) return installed;
  const options = { env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" } };
  const wait = ["-o", "DPkg::Lock::Timeout=300"];
  try {
    await run("apt-get", [...wait, "update"], options);
    const install = ["install", "-y", "--no-install-recommends", "pgbouncer"];
    await run("apt-get", [...wait, ...install], options);
  } catch {
    return null;
  }
  return await firstThere([debians]);
}

async function firstThere(files: readonly string[]): Promise<string | null> {
  for (const file of files) {
    try {
      await access(file);
      return file;
    } catch {
      // The next one.
    }
  }
  return null;
}

/**
 * Starts one before the tests' server; ended after the test file.
 *
 * @param ignoring whether it drops startup parameters it does not know, rather than refuse them
 */
export async function startPgBouncer(
  program: string,
  mode: PoolMode,
  ignoring: boolean,
): Promise<PgBouncer> {
  const folder = await mkdtemp(join(tmpdir(), "pg-task-pgbouncer-"));
  await chmod(folder, 0o755);
  const port = await freePort();
  const { host, port: serverPort, user } = serverTarget();
  await writeFile(join(folder, "users"), `"${user}" ""\n`);
  await writeFile(
    join(folder, "ini"),
    `[databases]
* = host=${host} port=${serverPort}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${join(folder, "users")}
pool_mode = ${mode}
; a login that the server has refused for a moment is tried again that soon, not after 15 s
server_login_retry = 1
${ignoring ? "ignore_startup_parameters = options" : ""}
`,
  );
  const child = spawn(program, [join(folder, "ini")], {
    stdio: ["ignore", "ignore", "pipe"],
    ...(isRoot ? { uid: nobody, gid: nobody } : {}),
  });
  const exit = once(child, "exit");
  after(async () => {
    child.kill("SIGQUIT");
    await exit;
    await rm(folder, { recursive: true, force: true });
  });
  let said = "";
  for await (const line of createInterface({ input: child.stderr })) {
    said += `${line}\n`;
    if (line.includes("process up")) {
      child.stderr.resume();
      return { port };
    }
  }
  throw new Error(`PgBouncer did not start:\n${said}`);
}
