import assert from "node:assert/strict";
import { test } from "node:test";
import { prepare, verify } from "./flow.js";
import { createDatabase } from "../support/database.js";

const database = await createDatabase();
const client = await database.connect();
await prepare(client);

/** Adds a task that has ended in this state with so many effects. */
async function ended(state: string, effects: number, more = ""): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, data, state) VALUES ('', 'an insert${more}', $1) RETURNING id::text AS id`,
    [state],
  );
  const id = rows[0]?.id ?? "";
  await client.query("INSERT INTO effect (task) SELECT $1 FROM generate_series(1, $2)", [id, effects]);
  return id;
}

/** Deletes the row of a task that has had so many effects by then. */
async function remove(id: string, effects: number): Promise<void> {
  await client.query("INSERT INTO changed_proven VALUES ($1, 'delete', $2)", [id, effects]);
  await client.query("DELETE FROM task WHERE id = $1", [id]);
}

test("ids are 2^32 or more, and two in succession have the same lower 32 bits", async () => {
  const [first, second, third] = [await ended("DONE", 1), await ended("DONE", 1), await ended("DONE", 1)].map(BigInt);
  assert.ok(first !== undefined && second !== undefined && third !== undefined);
  assert.ok(first >= 2n ** 32n && second > first && third > second);
  const low = [first, second, third].map((id) => BigInt.asUintN(32, id));
  assert.ok(low[0] === low[1] || low[1] === low[2]);
});

test("effects that a change between commit and result must not undo or repeat are judged", async () => {
  await ended("STOP", 0, " ");
  await remove(await ended("DONE", 1), 1);
  assert.deepEqual((await verify(client)).wrong, []);
  const wrong = [await ended("STOP", 1, "  "), await ended("DONE", 2), await ended("DONE", 0)];
  const again = await ended("DONE", 2);
  await remove(again, 1);
  await client.query("INSERT INTO effect (task) VALUES (7)");
  const found = (await verify(client)).wrong;
  assert.equal(found.length, 5, found.join("\n"));
  for (const id of [...wrong, again]) assert.ok(found.some((row) => row.includes(id)));
  assert.ok(found.some((row) => row.includes('"task":7,')));
});
