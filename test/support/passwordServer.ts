import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after } from "node:test";
import type { Client } from "../../src/shared/postgres/client.js";
import { configFolder } from "./configFile.js";
import { connectTo } from "./connectTo.js";
import { PgTask } from "./pgTask.js";
import { RestartableServer } from "./restartableServer.js";

/** The password of the superuser, as which pg-task connects to the control database. */
export const controlPassword = "the control password";

/** A server that asks every role for its password. */
export class PasswordServer {
  readonly url: string;
  readonly port: number;
  readonly admin: Client;
  readonly rules: string;

  private constructor({ url, port }: RestartableServer, admin: Client, rules: string) {
    this.url = url;
    this.port = port;
    this.admin = admin;
    this.rules = rules;
  }

  /** Starts the server. It is stopped after the file's tests. */
  static async start(): Promise<PasswordServer> {
    const server = await RestartableServer.started();
    const admin = await connectTo(server.url);
    after(() => admin.end());
    await admin.query(`SET password_encryption = 'scram-sha-256'; ALTER ROLE postgres PASSWORD '${controlPassword}'`);
    const rules = join(server.dataDirectory, "pg_hba.conf");
    await writeFile(rules, (await readFile(rules, "utf8")).replaceAll(/trust$/gm, "scram-sha-256"));
    await admin.query("SELECT pg_reload_conf()");
    return new PasswordServer(server, admin, rules);
  }

  async createOwner(role: string, password = "first password"): Promise<void> {
    await this.admin.query(`CREATE ROLE ${role} LOGIN PASSWORD '${password}'`);
    await this.admin.query(`CREATE DATABASE ${role} OWNER ${role}`);
  }

  urlOf(user: string, password: string, database = user): string {
    const url = new URL(this.url);
    [url.username, url.password, url.pathname] = [user, password, `/${database}`];
    return url.href;
  }

  /** Opens a connection to a database as the superuser. It is ended after the file's tests. */
  async connect(database: string): Promise<Client> {
    const client = await connectTo(this.urlOf("postgres", controlPassword, database));
    after(() => client.end());
    return client;
  }

  config(entry: object): object {
    return { url: this.url, "pg_task.json": [entry] };
  }
}

/** Starts a pg-task that has its configuration in a file. Returns it, and the folder of the file. */
export async function startWithFile(
  content: unknown,
  env: Readonly<Record<string, string>>,
): Promise<{ readonly program: PgTask; readonly folder: { cwd: string } }> {
  const program = new PgTask();
  const folder = { cwd: await configFolder(content) };
  program.launch(undefined, { env, cwd: folder.cwd });
  return { program, folder };
}

/** Starts a pg-task with this configuration, in the test's process. It is stopped after the file's tests. */
export function startWith(content: unknown, env: Readonly<Record<string, string>> = {}): PgTask {
  const pgTask = new PgTask();
  pgTask.launch(content, { env });
  return pgTask;
}
