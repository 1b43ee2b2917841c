import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { cli } from "../../support/cli.js";
import { connectTo } from "../../support/connectTo.js";
import { doctor } from "../../support/doctor.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { startProcess } from "../../support/process.js";
import { waitForRow } from "../../support/waitFor.js";
import { projectPath } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const server = await RestartableServer.create(await freePort());
await server.start();
const admin = await connectTo(server.url);
after(() => admin.end());
await admin.query("SET password_encryption = 'scram-sha-256'; ALTER ROLE postgres PASSWORD 'top'");
const rules = join(server.dataDirectory, "pg_hba.conf");
await writeFile(rules, (await readFile(rules, "utf8")).replaceAll(/trust$/gm, "scram-sha-256"));
await admin.query("SELECT pg_reload_conf()");

const env = { PGPASSWORD: "top", SHOP_PASSWORD: "of the shop" };

const config = (entry: object): object => ({ url: server.url, "pg_task.json": [entry] });

/**
 * Runs `pg-task check` on a configuration.
 *
 * @returns the exit code, the output, and the folder of the configuration file
 */
async function check(content: object): Promise<{ code: number | null; text: string; cwd: string }> {
  const cwd = await temporaryFolder();
  await writeFile(join(cwd, "pg_task.json"), JSON.stringify(content));
  const { code, stdout, stderr } = await cli(["check"], { cwd, env });
  return { code, text: stdout + stderr, cwd };
}

test("the README's configuration works on a server that requires passwords", async () => {
  const readme = readFileSync(projectPath("README.md"), "utf8");
  const [, text = ""] = /```json\n([^]*?)```/.exec(readme) ?? [];
  const configuration = { ...JSON.parse(text), url: server.url };
  const before = await check(configuration);
  assert.equal(before.code, 0, before.text);
  assert.doesNotMatch(before.text, /^warning/m);
  const program = await startProcess({ config: configuration, env });
  await program.line("ready");
  const shop = new URL(server.url);
  [shop.username, shop.password, shop.pathname] = ["shop", env.SHOP_PASSWORD, "/shop"];
  const client = await connectTo(shop.href);
  for (const table of ["task", "mail.outbox"]) {
    await client.query(`INSERT INTO ${table} (input) VALUES ('SELECT session_user')`);
    const done = await waitForRow<{ output: string }>(client, `SELECT output FROM ${table} WHERE state = 'DONE'`, []);
    assert.equal(done.output, "shop");
  }
  await client.end();
  assert.equal((await program.end()).code, 0);
});

test("check warns of a role without a password, and ALTER ROLE is suggested when that helps", async () => {
  const before = await check(config({ data: "bare" }));
  assert.equal(before.code, 0);
  assert.match(
    before.text,
    /^warning +role "bare" would be created without a password, but the server asks for one: set "password"/m,
  );
  for (const entry of [{ data: "bare" }, { data: "bare", password: "new" }]) {
    const program = await startProcess({ config: config(entry), env });
    const { reason } = await program.line("manager unavailable, retrying");
    assert.match(String(reason), /ALTER ROLE "bare" PASSWORD '…'/);
    assert.equal((await program.end()).code, 0);
  }
  const { text, cwd } = await check(config({ data: "bare", password: "new" }));
  assert.match(text, /ALTER ROLE "bare" PASSWORD '…'/);
  const { lines } = await doctor(env, cwd);
  assert.match(lines.find(({ level }) => level === "fail")?.remedy ?? "", /ALTER ROLE … PASSWORD/);
  await admin.query("ALTER ROLE bare PASSWORD 'new'");
  const fixed = await startProcess({ config: config({ data: "bare", password: "new" }), env });
  await fixed.line("ready");
  assert.equal((await fixed.end()).code, 0);
});
