import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { createDatabase } from "../../support/database.js";
import { cli, commandsOn, envOf } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { only } from "../../support/tasks.js";
import { createRole } from "../../support/taskTables.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { serve } from "../../support/serve.js";

const { database, client, tasks } = await serve({ "pg_task.sleep": 100 });
const standby = new PgTask();
const { run } = commandsOn(database);

describe("pg-task status", () => {
  test("reports leader, standbys, manager, sessions and pauses", async () => {
    await standby.start({ url: database.url });
    await tasks.run("SELECT 1");
    const [id = ""] = await tasks.insert({ input: "SELECT pg_sleep(60)" });
    await tasks.sleeping(id);
    await run("pause", "-g", "some", "--reason", "why");
    const { code, stdout } = await run("status", "--json");
    assert.equal(code, 0);
    const { cluster, tables } = JSON.parse(stdout);
    const { rows } = await client.query<{ pid: number; name: string }>(
      "SELECT pid, application_name AS name FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg\\_%'",
    );
    const conf = rows.filter(({ name }) => name === "pg_conf").map(({ pid }) => pid);
    assert.deepEqual(new Set([cluster.leader.pid, cluster.standbys[0]?.pid]), new Set(conf));
    const [table] = tables;
    assert.equal(table.manager.pid, rows.find(({ name }) => name.startsWith("pg_work"))?.pid);
    assert.ok(table.sessions.sessions >= 1 && table.sessions.running >= 1, stdout);
    assert.deepEqual(
      table.pauses.map(({ group }: { group: string }) => group),
      ["some"],
    );
    assert.ok(table.rates.lastMinute.ended >= 1);
    await run("resume", "-g", "some");
    await run("stop", id);
    await standby.stop();
  });

  test("without a leader names one with another pg_conf.name or control database, for any role", async () => {
    const { rows } = await client.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_conf'",
    );
    const leader = new RegExp(
      `^other {6}server process ${only(rows).pid} .*leads(.*) in control database ${database.target.database}$`,
      "m",
    );
    const role = await createRole(client, `status_${database.target.database}`);
    const elsewhere = await createDatabase("empty");
    const asRole = envOf(database, role).DATABASE_URL;
    for (const [url, name, note] of [
      [database.url, "mine", " under another pg_conf.name"],
      [asRole, "mine", " under another pg_conf.name"],
      [elsewhere.url, "mine", " under another pg_conf.name"],
      [elsewhere.url, "pg_task", ""],
    ] as const) {
      const cwd = await temporaryFolder();
      await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ url, "pg_conf.name": name }));
      const { stdout } = await cli(["status"], { cwd });
      // The role may not read the table, so nothing is known of its manager.
      assert.match(
        stdout,
        url === database.url
          ? /^leader {5}none with this configuration, but a manager serves a table: see the log of the pg-task that runs$/m
          : /^leader {5}none: run pg-task start$/m,
      );
      assert.equal(leader.exec(stdout)?.[1], note, stdout);
    }
    const cwd = await temporaryFolder();
    const config = { url: database.url, "pg_conf.name": "mine" };
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
    const diagnosis = await cli(["doctor"], { cwd });
    assert.ok(
      diagnosis.stdout.includes(
        `cluster mine has no leader; server process ${only(rows).pid} leads a cluster with another name\tset pg_conf.name `,
      ),
      diagnosis.stdout,
    );
    const { database: data, user } = database.target;
    const apart = { url: elsewhere.url, "pg_task.json": [{ data, user }] };
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(apart));
    assert.match(
      (await cli(["doctor"], { cwd })).stdout,
      /\tcluster pg_task has no leader, but a manager serves a table of this configuration\tsee the log of the pg-task/,
    );
    assert.doesNotMatch((await run("status")).stdout, /^other/m);
  });
});
