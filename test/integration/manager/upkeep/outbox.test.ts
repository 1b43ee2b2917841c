import assert from "node:assert/strict";
import { outboxLimits } from "../../../../src/manager/model/tuning.js";
import { limitOutbox, readDueEnds, writeOutcomes } from "../../../../src/manager/upkeep/outbox.sql.js";
import { test } from "../../../support/limitedTest.js";
import { plannedNodes } from "../../../support/plans.js";
import { openTable } from "../../../support/taskTables.js";
import { rowsOf, valueOf } from "../../../support/tasks.js";

const { user, manager, table } = await openTable();
await user.query("INSERT INTO task_webhooks (name, states) VALUES ('a', '{DONE}'), ('b', '{DONE}'), ('c', '{DONE}')");

const insert = (webhook: string, ends: number, created: string): Promise<unknown> =>
  user.query(
    `INSERT INTO task_outbox (webhook, task, state, "group", stop, created)
     SELECT $1, n, 'DONE', 'g', now(), now() - $3::interval FROM generate_series(1, $2::integer) AS n`,
    [webhook, ends, created],
  );

test("what is too old is dropped, and the oldest of what is too much, for each webhook on its own", async () => {
  await insert("a", outboxLimits.ends, "1 hour");
  await insert("a", 2, "0");
  await insert("b", 3, `${outboxLimits.days} days 1 second`);
  await insert("b", 1, `${outboxLimits.days - 1} days`);
  await insert("c", 1, "1 hour");
  assert.deepEqual(await limitOutbox(manager, table, ["a", "b", "c"]), [
    { name: "a", dropped: 2 },
    { name: "b", dropped: 3 },
  ]);
  assert.deepEqual(
    await rowsOf(user, "SELECT webhook, count(*)::integer AS left FROM task_outbox GROUP BY webhook ORDER BY webhook"),
    [
      { webhook: "a", left: outboxLimits.ends },
      { webhook: "b", left: 1 },
      { webhook: "c", left: 1 },
    ],
  );
  const oldest =
    "SELECT min(task)::text FROM task_outbox WHERE webhook = 'a' AND created < now() - interval '1 minute'";
  assert.equal(await valueOf(user, oldest), "3");
});

test("a full outbox is read by its index, the earliest of what is due first, and no more than may be sent", async () => {
  const sending = new Map([
    ["a", 3],
    ["b", 0],
  ]);
  for (const mode of ["force_custom_plan", "force_generic_plan"] as const) {
    for (const work of [
      (stub: typeof manager) => readDueEnds(stub, table, sending, ["1"]),
      (stub: typeof manager) => writeOutcomes(stub, table, ["1"], [{ id: "2", pauseMs: 1 }], []),
    ]) {
      const nodes = await plannedNodes(manager, work, mode);
      const read = nodes.filter(
        (node) => node["Relation Name"] === "task_outbox" && node["Node Type"] !== "ModifyTable",
      );
      assert.ok(read.length > 0);
      for (const node of read) {
        assert.match(node["Node Type"], /^Index (Only )?Scan$/);
        assert.ok(node["Index Cond"] !== undefined, JSON.stringify(node));
      }
    }
  }
  await user.query("UPDATE task_outbox SET next = '2001-01-01' WHERE webhook = 'a' AND task = 77777");
  const [a, b] = await readDueEnds(manager, table, sending, []);
  assert.deepEqual([a?.due.length, a?.due[0]?.task, a?.name], [5, "77777", "a"]);
  assert.ok(a?.nextMs !== null && (a?.nextMs ?? 0) <= 0);
  assert.deepEqual([b?.due.length, b?.nextMs], [1, null]);
});
