import assert from "node:assert/strict";
import { it } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { startWeb } from "../../../support/startWeb.js";
import { createVersionOne } from "../../../support/versionOne.js";
import { problemSchema } from "../../../../src/web/api/schemas.js";

it("refuses a key if the table has a column of its own named key", async () => {
  const own = await createDatabase("empty");
  const connection = await own.connect();
  await createVersionOne(connection, "public");
  await connection.query("ALTER TABLE task ADD COLUMN key integer DEFAULT 7");
  const { program, web, table } = await startWeb({ url: own.url });
  const path = `/api/tables/${table}/tasks`;
  const { status, value } = await web.post(path, { input: "SELECT 1", key: "1" });
  const { code, detail } = problemSchema.parse(value);
  assert.deepEqual([status, code], [400, "INVALID"]);
  assert.match(detail, /^tasks of "public"\."task" cannot have keys: the feature keys is off; /);
  assert.equal((await web.post(path, { input: "SELECT 1", columns: { key: 8 } })).status, 201);
  const { rows } = await connection.query<{ key: number }>("SELECT key FROM task");
  assert.deepEqual(rows, [{ key: 8 }]);
  assert.equal((await program.end()).code, 0);
});
