import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { identifier } from "../../../src/shared/postgres/quoting.js";
import { cli, envOf } from "../../support/cli.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { projectPath } from "../../support/project.js";
import { createRole } from "../../support/taskTables.js";

const database = await createDatabase();
const client = await database.connect();
const name = database.target.database;
const reading = [["why", "1"], ["groups"], ["list", "--schedules"], ["list"], ["show", "1"], ["status"]];

/** Runs the commands that only look, which must succeed. */
async function look(env: Readonly<Record<string, string>>): Promise<void> {
  for (const args of reading) {
    const { code, stderr } = await cli(args, { env });
    assert.equal(code, 0, `${args.join(" ")}: ${stderr}`);
  }
}

test("a role that only looks is told which GRANT it lacks, and those of the documents suffice", async () => {
  const owner = await createRole(client, `${name}_owner`);
  const reader = await createRole(client, `${name}_reader`);
  await client.query(`GRANT ALL ON SCHEMA public TO ${owner}; ALTER TABLE task OWNER TO ${owner}`);
  await client.query("INSERT INTO task (id, input, plan, repeat) VALUES (1, 'SELECT 1', 'infinity', '1 day')");
  const env = envOf(database, reader);
  await client.query(`GRANT SELECT ON task TO ${reader}`);
  const grant = /GRANT SELECT ON public\.task_pause, [^;\n]*? TO "[^"]+"/;
  for (const args of reading.slice(0, 3)) {
    const { code, stderr } = await cli(args, { env });
    assert.notEqual(code, 0);
    assert.match(stderr, /permission denied for table task_pause/);
    assert.match(stderr, grant);
  }
  const check = await cli(["check"], { env });
  const text = check.stdout + check.stderr;
  const serve = `GRANT ${identifier(owner)} TO ${identifier(reader)}, or ALTER TABLE "public"."task" OWNER TO`;
  assert.ok(text.search(grant) < text.indexOf(serve), text);
  assert.match(text, grant);
  const doctor = await cli(["doctor"], { env });
  assert.match(doctor.stdout + doctor.stderr, grant);
  const [statement = ""] = grant.exec(text) ?? [];
  await client.query(statement);
  await look(env);
  await client.query(`DROP OWNED BY ${identifier(reader)}`);
  const [section = ""] =
    /^## Roles that only look[^]*?(?=^## )/m.exec(readFileSync(projectPath("docs/security.md"), "utf8")) ?? [];
  const [, sql = ""] = /```sql\n([^]*?)```/.exec(section) ?? [];
  assert.match(sql, /^GRANT/);
  await client.query(sql.replaceAll(/ TO reader/g, ` TO ${identifier(reader)}`));
  await look(env);
});
