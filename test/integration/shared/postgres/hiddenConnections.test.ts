import assert from "node:assert/strict";
import { connectionRoom } from "../../../../src/manager/sessions/connectionRoom.sql.js";
import { connectClient } from "../../../../src/shared/postgres/client.js";
import { readConnections } from "../../../../src/tasks/queries/clusterProcesses.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { createRole } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const client = await database.connect();

test("a role that may see little of others' connections counts them all the same", async () => {
  const others = await Promise.all(Array.from({ length: 20 }, () => database.connect()));
  const user = await createRole(client, `counting_${database.target.database}`);
  const ordinary = await connectClient({ ...database.target, user }, { applicationName: "test" });
  try {
    const { most, taken } = await readConnections(ordinary);
    assert.ok(taken > others.length, `${taken} of ${most} taken`);
    const room = await connectionRoom(ordinary);
    assert.ok(room < most - 10 - others.length, `room for ${room} of ${most}`);
  } finally {
    await ordinary.end();
  }
});
