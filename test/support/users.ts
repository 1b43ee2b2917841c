import { after } from "node:test";
import type { Client } from "../../src/shared/postgres/client.js";
import { connectTo } from "./connectTo.js";
import { PasswordServer } from "./passwordServer.js";
import { projectText } from "./project.js";
import { PgTask } from "./pgTask.js";
import { only, waitForRow, type TaskRow } from "./tasks.js";

export const password = "the password of a role";

/** A group of alice's and one of bob's whose tasks have the same hash. */
export const collidingGroups = { hers: "a219", his: "b53626" };

/**
 * A server on which every role needs its password, and pg-task with users: its control connection is a superuser's, or
 * that of a role with CREATEROLE and nothing more, as on a managed server. The table public.task belongs to the role
 * `tasks`. The roles `alice` and `bob` may insert, read, change and delete tasks.
 */
export class UsersServer {
  readonly server: PasswordServer;
  readonly pgTask = new PgTask();
  readonly config: object;
  readonly entries: readonly object[];
  readonly admin: Client;
  readonly tasks: Client;
  readonly alice: Client;
  readonly bob: Client;

  private constructor(
    server: PasswordServer,
    config: { readonly "pg_task.json": readonly object[] },
    [admin, tasks, alice, bob]: readonly Client[],
  ) {
    if (admin === undefined || tasks === undefined || alice === undefined || bob === undefined) throw new Error("four");
    this.server = server;
    this.config = config;
    this.entries = config["pg_task.json"];
    [this.admin, this.tasks, this.alice, this.bob] = [admin, tasks, alice, bob];
  }

  static async start(control: "superuser" | "CREATEROLE", entry: object = {}, more: object = {}): Promise<UsersServer> {
    const server = await PasswordServer.start();
    const { admin } = server;
    await admin.query(`CREATE ROLE manage LOGIN CREATEROLE PASSWORD '${password}'`);
    const maker = control === "superuser" ? admin : await opened(server, "manage", "postgres");
    // Before PostgreSQL 14, the default is md5.
    await maker.query("SET password_encryption = 'scram-sha-256'");
    await maker.query(`CREATE ROLE tasks LOGIN PASSWORD '${password}'`);
    for (const role of ["alice", "bob"]) await maker.query(`CREATE ROLE ${role} LOGIN PASSWORD '${password}'`);
    await admin.query("CREATE DATABASE shop OWNER tasks");
    const inShop = await server.connect("shop");
    await inShop.query("SET password_encryption = 'scram-sha-256'");
    await inShop.query("GRANT ALL ON SCHEMA public TO tasks; GRANT USAGE, CREATE ON SCHEMA public TO alice, bob");
    const url = control === "superuser" ? server.url : server.urlOf("manage", password, "postgres");
    const config = {
      url: control === "superuser" ? server.urlOf("postgres", "the control password", "postgres") : url,
      "pg_task.json": [{ data: "shop", user: "tasks", password, users: true, ...entry }],
      ...more,
    };
    const clients = await Promise.all(["tasks", "alice", "bob"].map((user) => opened(server, user, "shop")));
    const started = new UsersServer(server, config, [inShop, ...clients]);
    await started.pgTask.start(config);
    const [documented = ""] = /^INSERT INTO task_role[^]*?(?=^```$)/m.exec(projectText("docs/users.md")) ?? [];
    await started.tasks.query(documented);
    await started.tasks.query(`
      UPDATE task_role SET max = 3 WHERE role = 'alice';
      GRANT SELECT, INSERT, UPDATE, DELETE ON task TO alice, bob;
      GRANT SELECT ON task_stats, task_errors, task_groups, task_schedules, task_pause, task_owed, task_turn TO alice, bob;
      GRANT USAGE ON SEQUENCE task_id_seq TO alice, bob`);
    return started;
  }

  /** Inserts a task over this connection, and waits until it has ended. */
  async run(client: Client, input: string, more: Readonly<Record<string, unknown>> = {}): Promise<TaskRow> {
    return await this.ended(await this.insert(client, input, more));
  }

  async insert(client: Client, input: string, more: Readonly<Record<string, unknown>> = {}): Promise<string> {
    const given = { input, group: String(Math.random()), ...more };
    const names = Object.keys(given).map((name) => `"${name}"`);
    const places = names.map((_, index) => `$${index + 1}`);
    const { rows } = await client.query<{ id: string }>(
      `INSERT INTO public.task (${names.join(", ")}) VALUES (${places.join(", ")}) RETURNING id`,
      Object.values(given),
    );
    return only(rows).id;
  }

  async ended(id: string): Promise<TaskRow> {
    return await waitForRow<TaskRow>(
      this.admin,
      "SELECT id, state::text AS state, output, error, pid, crash FROM public.task WHERE id = $1 AND state IN ('DONE', 'FAIL', 'GONE', 'STOP') AND owner IS NULL",
      [id],
    );
  }
}

/** Opens a connection of a role. It is ended after the file's tests. */
export async function opened(server: PasswordServer, user: string, database: string): Promise<Client> {
  const client = await connectTo(server.urlOf(user, password, database));
  after(() => client.end());
  return client;
}
