import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { partitionedByPlan } from "../../../support/foreignTables.js";
import { createRole, ensureTaskTable } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

const next = "task_next(text, text, timestamptz)";

describe("functions of the calendar", () => {
  test("are refused if they belong to a role that the manager does not trust", async () => {
    const mallory = await createRole(client, `mallory_${target.database}`);
    await client.query("CREATE SCHEMA shared");
    await ensureTaskTable(target, { schema: "shared", table: "first" });
    await client.query(`ALTER FUNCTION shared.${next} OWNER TO ${mallory}`);
    const role = await createRole(client, `manager_${target.database}`);
    await client.query(`GRANT CREATE, USAGE ON SCHEMA shared TO ${role}`);
    const second = (): Promise<unknown> =>
      ensureTaskTable({ ...target, user: role }, { schema: "shared", table: "second" });
    await assert.rejects(second, {
      code: "SCHEMA_INCOMPATIBLE",
      message: new RegExp(
        `^the function "shared"\\.task_next\\(text, text, timestamptz\\) belongs to role "${mallory}"`,
      ),
    });
    await client.query(`GRANT ${mallory} TO ${role}`);
    await second();
  });

  test("stand beside functions of the same name with other parameters", async () => {
    await client.query(
      "CREATE SCHEMA beside; CREATE FUNCTION beside.task_next(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT $1'",
    );
    await ensureTaskTable(target, { schema: "beside" });
    const { rows } = await client.query(
      "SELECT beside.task_next(7) AS own, beside.task_next('@daily', 'UTC') > now() AS ours",
    );
    assert.deepEqual(rows, [{ own: "7", ours: true }]);
  });

  test("are not replaced where another function has the name and parameters", async () => {
    await client.query(
      "CREATE SCHEMA taken; CREATE FUNCTION taken.task_next(text, text, timestamptz) RETURNS timestamptz LANGUAGE sql AS 'SELECT $3'",
    );
    await assert.rejects(ensureTaskTable(target, { schema: "taken" }), {
      code: "SCHEMA_INCOMPATIBLE",
      message: /^the function "taken"\.task_next\(text, text, timestamptz\) exists and was not created by pg-task/,
    });
  });
});

test("a rule is refused if the planned time of the table is a date", async () => {
  await client.query(`
    CREATE SCHEMA dated;
    CREATE TABLE dated.task (id bigserial PRIMARY KEY, plan date NOT NULL DEFAULT current_date, input text NOT NULL,
      state text NOT NULL DEFAULT 'PLAN')`);
  await ensureTaskTable(target, { schema: "dated" });
  await client.query("INSERT INTO dated.task (input) VALUES ('SELECT 1')");
  await assert.rejects(client.query("INSERT INTO dated.task (input, rule) VALUES ('SELECT 1', '@daily')"), {
    code: "0A000",
    message: "rule needs a column plan of type timestamp with time zone, not date",
  });
});

test("a row that moves to another partition keeps the plan that its user has set", async () => {
  await client.query(partitionedByPlan("moving"));
  await ensureTaskTable(target, { schema: "moving" });
  const { rows } = await client.query<{ id: string }>(
    "INSERT INTO moving.task (input, rule, zone, plan) VALUES ('SELECT 1', '0 0 1 1 *', 'UTC', '2100-01-01Z') RETURNING id",
  );
  const id = rows[0]?.id;
  const move = async (plan: string): Promise<{ part: string; plan: string; due: string } | undefined> => {
    const { rows: moved } = await client.query<{ part: string; plan: string; due: string }>(
      `UPDATE moving.task SET plan = $2 WHERE id = $1 RETURNING tableoid::regclass::text AS part,
         (plan AT TIME ZONE 'UTC')::text AS plan, (due AT TIME ZONE 'UTC')::text AS due`,
      [id, plan],
    );
    return moved[0];
  };
  const early = await move("2000-06-01 12:00Z");
  const late = await move("2100-06-01 12:00Z");
  assert.deepEqual([early?.plan, early?.due], ["2000-06-01 12:00:00", "2000-06-01 12:00:00"]);
  assert.deepEqual([late?.plan, late?.due], ["2100-06-01 12:00:00", "2100-06-01 12:00:00"]);
  assert.notEqual(early?.part, late?.part);
});
