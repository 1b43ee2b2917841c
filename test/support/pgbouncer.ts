import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { freePort } from "../../src/embedded/port.js";
import { serverTarget } from "./database.js";
import { installedProgram } from "./debianPackage.js";

/** User id for PgBouncer, which refuses to run as root. */
const nobody = 65534;
const isRoot = process.getuid?.() === 0;

export type PoolMode = "session" | "transaction" | "statement";

export interface PgBouncer {
  readonly port: number;
}

/** Returns the path of PgBouncer, or null if it is missing and cannot be installed. */
export const findPgBouncer = (): Promise<string | null> =>
  installedProgram("pgbouncer", ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"]);

/**
 * Starts a PgBouncer for the tests' server. It is stopped after the file's tests.
 *
 * @param ignoresUnknownParameters whether PgBouncer ignores unknown startup parameters instead of rejecting them
 */
export async function startPgBouncer(
  program: string,
  mode: PoolMode,
  ignoresUnknownParameters: boolean,
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
; retry a login that the server rejected after 1 s instead of 15 s
server_login_retry = 1
${ignoresUnknownParameters ? "ignore_startup_parameters = options" : ""}
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
  let stderr = "";
  for await (const line of createInterface({ input: child.stderr })) {
    stderr += `${line}\n`;
    if (line.includes("process up")) {
      child.stderr.resume();
      return { port };
    }
  }
  throw new Error(`PgBouncer did not start:\n${stderr}`);
}
