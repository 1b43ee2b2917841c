import assert from "node:assert/strict";
import { it } from "node:test";
import { eventually } from "../../support/tasks.js";
import { UsersServer } from "../../support/users.js";

const limit = { timeout: 120_000 };
const users = await UsersServer.start("superuser", {}, { "pg_conf.max": 3, "pg_conf.reserve": 0 });
const { admin, alice, tasks } = users;
await tasks.query("UPDATE task_role SET max = NULL");

async function fill(role: string): Promise<void> {
  await tasks.query(
    `INSERT INTO task (role, "group", input)
     SELECT $1::name, $1 || i, 'SELECT pg_sleep(0.1)' FROM generate_series(1, 5000) AS i`,
    [role],
  );
}

interface Progress {
  readonly role: string;
  readonly done: number;
  readonly left: number;
}

/** Waits until each of these roles has `count` tasks that have ended. */
async function progress(roles: readonly string[], count: number): Promise<readonly Progress[]> {
  return await eventually<Progress>(
    admin,
    `SELECT role::text AS role, (count(*) FILTER (WHERE state = 'DONE'))::integer AS done,
       (count(*) FILTER (WHERE state = 'PLAN'))::integer AS left
     FROM task WHERE role IS NOT NULL GROUP BY role`,
    (rows) => roles.every((role) => rows.some((row) => row.role === role && row.done >= count)),
  );
}

it("a role without sessions gets one beside the backlog of another", limit, async () => {
  await fill("bob");
  // By then, it is known that the runs are long and that many more sessions are wanted, and all of them are open.
  await progress(["bob"], 100);
  await users.run(alice, "SELECT 1");
  const [bob] = (await progress(["bob"], 100)).filter(({ role }) => role === "bob");
  assert.ok((bob?.left ?? 0) > 100, `${bob?.left} tasks left`);
});

it("more roles than sessions take turns", limit, async () => {
  const roles = ["alice", "bob", "carol", "dora", "eve"];
  for (const role of roles.slice(2)) {
    await admin.query(`CREATE ROLE ${role}; GRANT USAGE ON SCHEMA public TO ${role}`);
    await tasks.query("INSERT INTO task_role (role, login) VALUES ($1, $2)", [role, `task_${role}`]);
  }
  for (const role of roles) if (role !== "bob") await fill(role);
  for (const { role, left } of await progress(roles, 20)) assert.ok(left > 100, `${left} tasks of ${role} left`);
});
