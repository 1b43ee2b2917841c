import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after } from "node:test";
import { freePort } from "../../src/embedded/port.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { connectTo } from "../support/connectTo.js";
import { findPgBouncer, startPgBouncer } from "../support/pgbouncer.js";
import { createDatabase, onServer, type TestDatabase } from "../support/database.js";
import { comparable, DocumentedPage, documentedSteps } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { startProcess } from "../support/process.js";
import { projectText } from "../support/project.js";
import { RestartableServer } from "../support/restartableServer.js";

const text = projectText("docs/troubleshooting.md");

interface Situation {
  readonly database: TestDatabase;
  readonly client: Client;
  readonly page: DocumentedPage;
  /** A role of this section. It is dropped after the test. */
  readonly role: string;
}

/** How a test provokes what a section describes. */
interface Trouble {
  /** Why the section cannot be tested here. */
  readonly skip?: string | false;
  /** Parameters of the pg-task that serves the database. */
  readonly parameters?: Readonly<Record<string, string>>;
  /** Whether pg-task serves the database. */
  readonly served: boolean;
  /** The database has no task table. */
  readonly empty?: boolean;
  provoke?(situation: Situation): Promise<unknown>;
}

/** Executes statements while pg-task serves the database, and waits until the tasks have ended, if they do. */
const served = (statements: string, ends = false): Trouble => ({
  served: true,
  async provoke({ client, page }) {
    await client.query(statements);
    if (ends) await page.settled();
    else if (statements.includes("pg_sleep")) await page.sleeping();
  },
});

/** Writes a pg_task.json with these keys, and the database's url unless they include one. */
async function configure({ page, database }: Situation, content: object): Promise<void> {
  delete page.env["DATABASE_URL"];
  await writeFile(join(await page.folder(), "pg_task.json"), JSON.stringify({ url: database.url, ...content }));
}

/** The entry of a role that is not the owner of the database. */
const entryOf = ({ database, role }: Situation): object => ({
  "pg_task.json": [{ data: database.target.database, user: role }],
});

const rejected = (statement: string, message: string): Trouble => ({
  served: false,
  async provoke({ client, role }) {
    await client.query(`CREATE ROLE ${role}; SET ROLE ${role}`);
    await assert.rejects(client.query(statement), { message });
    await client.query("RESET ROLE");
  },
});

const bouncer = await findPgBouncer();
const pagePort = await freePort();
const token = "a-token-of-the-tests";

const insert = (input: string, columns = ""): string => `INSERT INTO task (input) VALUES ('${input}')${columns}`;

const troubles: Readonly<Record<string, Trouble>> = {
  "It stays PLAN, and so do all others": {
    served: false,
    provoke: async ({ client }) => await client.query(insert("SELECT 1")),
  },
  "It stays PLAN while other tasks run": served(
    "INSERT INTO task (input) VALUES ('SELECT pg_sleep(60)'), ('SELECT 1')",
  ),
  "It stays PLAN, and its group does nothing": served(`
    INSERT INTO task_pause ("group", reason) VALUES ('mail', 'the mail server moves');
    INSERT INTO task ("group", input) VALUES ('mail', 'SELECT 1')`),
  "It stays PLAN, and it is not its time": served(
    "INSERT INTO task (plan, input) VALUES ('2100-01-01 00:00Z', 'SELECT 1')",
  ),
  "It waits for another task": served(`
    INSERT INTO task (plan, input) VALUES ('infinity', 'SELECT 1');
    INSERT INTO task (after, input) VALUES ('{1}', 'SELECT 2')`),
  "It is not found at all": {
    served: true,
    provoke: async ({ client }) => await client.query(`BEGIN; ${insert("SELECT 1")}`),
  },
  "It is locked": {
    served: true,
    async provoke({ client, database }) {
      const other = await database.connect();
      await client.query(`INSERT INTO task_pause DEFAULT VALUES; ${insert("SELECT 1")}`);
      await other.query("BEGIN; SELECT FROM task FOR UPDATE");
      await client.query("DELETE FROM task_pause");
    },
  },
  "It became GONE": served("INSERT INTO task (plan, input) VALUES (now() - interval '2 hours', 'SELECT 1')", true),
  "It starts a second or more too late": served("ALTER TABLE task DISABLE TRIGGER task_wake_up"),
  "permission denied, or a table that does not exist": served(insert("SELECT count(*) FROM orders"), true),
  "canceling statement due to user request, or statement timeout": served(
    "INSERT INTO task (timeout, input) VALUES ('100 ms', 'SELECT pg_sleep(60.5)')",
    true,
  ),
  "bind message supplies 1 parameters, or could not determine data type": served(
    "INSERT INTO task (args, input) VALUES ('[7]', 'SELECT $1 + $2::integer')",
    true,
  ),
  "Its row has vanished": served(insert("SELECT 1 WHERE false"), true),
  "It ran twice": { served: false },
  "A schedule runs at the wrong hour": served(
    "INSERT INTO task (rule, zone, input) VALUES ('0 9 * * *', 'UTC', 'SELECT 1')",
  ),
  "A run takes too long, or a schedule runs too often": served(`
    INSERT INTO task (repeat, "group", input) VALUES ('1 microsecond', 'poll', 'SELECT 1')`),
  "A schedule has stopped": served(`
    INSERT INTO task (rule, input) VALUES ('0 9 * * *', 'SELECT 1'); UPDATE task SET state = 'STOP'`),
  "permission denied for table task, or for sequence task_id_seq": rejected(
    insert("SELECT 1"),
    "permission denied for table task",
  ),
  'duplicate key value violates unique constraint "task_key_idx"': {
    served: false,
    async provoke({ client }) {
      const statement = "INSERT INTO task (key, input) VALUES ('one', 'SELECT 1')";
      await client.query(statement);
      const message = 'duplicate key value violates unique constraint "task_key_idx"';
      await assert.rejects(client.query(statement), { message });
    },
  },
  "The rule is refused": { served: true },
  "no server configured": {
    served: false,
    provoke: async ({ page }) => await Promise.resolve(delete page.env["DATABASE_URL"]),
  },
  "A mistake in the file": {
    served: false,
    provoke: async (situation) =>
      await configure(situation, { "pg_task.slep": 500, "pg_conf.max": "many", "pg_task.json": [] }),
  },
  "Nothing listens there": {
    served: false,
    provoke: async (situation) => await configure(situation, { url: "postgresql://postgres@127.0.0.1:1/shop" }),
  },
  "password authentication failed": {
    served: false,
    async provoke(situation) {
      const server = await RestartableServer.create(await freePort());
      await server.start();
      const admin = await connectTo(server.url);
      await admin.query(`SET password_encryption = 'scram-sha-256'; ALTER ROLE postgres PASSWORD 'known'`);
      await admin.query("CREATE ROLE shop LOGIN PASSWORD 'theirs'");
      await admin.query("CREATE DATABASE shop OWNER shop");
      const rules = join(server.dataDirectory, "pg_hba.conf");
      await writeFile(rules, (await readFile(rules, "utf8")).replaceAll(/trust$/gm, "scram-sha-256"));
      await admin.query("SELECT pg_reload_conf()");
      await admin.end();
      await configure(situation, { url: server.url, "pg_task.json": [{ data: "shop", password: "wrong" }] });
      situation.page.env["PGPASSWORD"] = "known";
    },
  },
  "A role or database is missing": {
    served: false,
    provoke: async (situation) => await configure(situation, entryOf(situation)),
  },
  "The table cannot be created": {
    served: false,
    empty: true,
    async provoke(situation) {
      const { client, role } = situation;
      await client.query(`CREATE ROLE ${role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC`);
      await configure(situation, entryOf(situation));
    },
  },
  "The table was renamed or moved": {
    served: true,
    empty: true,
    parameters: { "pg_task.schema": "app" },
    async provoke(situation) {
      await configure(situation, { "pg_task.schema": "app" });
      await situation.client.query("ALTER SCHEMA app RENAME TO app2");
    },
  },
  "The table has other columns": {
    served: false,
    empty: true,
    async provoke(situation) {
      await situation.client.query("CREATE TABLE task (id integer PRIMARY KEY, title text)");
      await configure(situation, {});
    },
  },
  "The connection goes through a pooler": {
    served: false,
    skip: bouncer === null && "PgBouncer is not installed here",
    async provoke(situation) {
      const { port } = await startPgBouncer(bouncer ?? "", "session", true);
      const url = new URL(situation.database.url);
      url.port = String(port);
      await configure(situation, { url: url.href });
    },
  },
  "The page asks for a token, or answers 401": {
    served: true,
    skip: spawnSync("curl", ["--version"]).error !== undefined && "curl is not installed here",
    parameters: { "pg_http.listen": `127.0.0.1:${pagePort}`, "pg_http.token": token },
    async provoke({ page }) {
      await Promise.resolve((page.env["PG_TASK_TOKEN"] = token));
    },
  },
  "It says standby, and nothing runs": {
    served: true,
    async provoke({ database }) {
      const second = await startProcess({ config: { url: database.url } });
      await second.line("standby");
    },
  },
  "The server has too few connections": { served: true },
};

const sections = text
  .split(/^##+ /m)
  .map((section) => ({ heading: section.slice(0, section.indexOf("\n")), section }))
  .filter(({ section }) => documentedSteps(section).length > 0);

test("every section with examples is provoked", () => {
  assert.deepEqual(
    sections.map(({ heading }) => heading).filter((heading) => !(heading in troubles)),
    [],
  );
  assert.deepEqual(
    Object.keys(troubles).filter((heading) => !new RegExp(`^##+ ${heading}$`, "m").test(text)),
    [],
  );
});

/** Replaces the names that a page gives to a role and to the page's port. */
const here = (example: string, role: string): string =>
  example.replaceAll("TO producer", `TO ${role}`).replaceAll(":8765", `:${pagePort}`);

for (const [heading, trouble] of Object.entries(troubles)) {
  const pgTask = new PgTask();
  const database = await createDatabase(trouble.empty ? "empty" : "task");
  const role = `trouble_${database.target.database}`;
  after(() => onServer((client) => client.query(`DROP ROLE IF EXISTS ${role}`)));

  test(heading, async (context) => {
    if (trouble.skip) return context.skip(trouble.skip);
    const client = await database.connect();
    const page = new DocumentedPage(database, client);
    if (trouble.served) await pgTask.start({ url: database.url, "pg_task.sleep": 100, ...trouble.parameters });
    await trouble.provoke?.({ database, client, page, role });
    const section = sections.find((one) => one.heading === heading)?.section ?? "";
    for (const step of documentedSteps(section)) {
      const shown = { ...step, text: here(step.text, role) };
      const result = await page.result(shown);
      if (step.result !== undefined) assert.equal(comparable(result), comparable(step.result), step.text);
    }
    await client.query("ROLLBACK");
    if (heading.startsWith("permission denied for table")) {
      await client.query(`SET ROLE ${role}; ${insert("SELECT 1", " RETURNING id")}; RESET ROLE; DROP OWNED BY ${role}`);
    }
    if (trouble.empty) return;
    // Nothing has to be waited for when pg-task stops. One section holds a lock.
    await client.query(`UPDATE task SET state = 'STOP' WHERE id IN
      (SELECT id FROM task WHERE state::text IN ('PLAN', 'TAKE', 'WORK') FOR UPDATE SKIP LOCKED)`);
    await pgTask.stop();
  });
}
