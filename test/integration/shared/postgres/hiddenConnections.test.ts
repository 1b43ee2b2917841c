import assert from "node:assert/strict";
import { availableConnections } from "../../../../src/manager/sessions/availableConnections.sql.js";
import { readConnections } from "../../../../src/tasks/queries/clusterProcesses.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { createRole } from "../../../support/taskTables.js";
import { connectTo } from "../../../support/connectTo.js";

const database = await createDatabase("empty");
const client = await database.connect();

test("a role that may not see others' sessions still counts their connections", async () => {
  const others = await Promise.all(Array.from({ length: 20 }, () => database.connect()));
  const user = await createRole(client, `counting_${database.target.database}`);
  const ordinary = await connectTo({ ...database.target, user });
  try {
    const { most, taken } = await readConnections(ordinary);
    assert.ok(taken > others.length, `${taken} of ${most} taken`);
    const available = await availableConnections(ordinary);
    assert.ok(available < most - 10 - others.length, `${available} of ${most} available`);
  } finally {
    await ordinary.end();
  }
});
