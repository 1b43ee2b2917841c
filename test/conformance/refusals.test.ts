import assert from "node:assert/strict";
import { identifier } from "../../src/shared/postgres/quoting.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";

const database = await createDatabase();
const client = await database.connect();

type Case = readonly [columns: Readonly<Record<string, unknown>>, message: string | RegExp, code?: string];

/**
 * Columns that an INSERT and an UPDATE must not set so, and the errors. Most of them have the SQLSTATE 22023. What checks
 * refuse is tested in integration/manager/schema/columnSet.
 */
const refused: readonly Case[] = [
  [
    { after: "{9223372036854775807}" },
    /^after contains 9223372036854775807, which is not below its own id \d+: a task can only wait for older ones$/,
  ],
  [{ after: "{{1,2},{2,3}}" }, "after must be an array of one dimension"],
  [{ after: "{1,null}" }, "after contains null"],
  [{ upon: "end" }, "upon is set without after"],
  [{ after: "{}", upon: "end" }, "upon is set without after"],
  [{ after: "{1}", upon: "ok" }, 'upon must be done, fail or end, not "ok"'],
  [{ after: "{1}", rule: "SELECT now()" }, "after and a rule that is a query exclude each other"],
  [{ retry: -1 }, "retry must be 0 or more, not -1"],
  [{ backoff: "0" }, "backoff must be more than 0, not 00:00:00"],
  [{ backoff: "-1 s" }, "backoff must be more than 0, not -00:00:01"],
  [{ sqlstate: "{4}" }, '"4" in sqlstate is neither an SQLSTATE nor a class'],
  [{ sqlstate: "{40,40p01}" }, /^"40p01" in sqlstate is neither/],
  [{ sqlstate: "{40,null}" }, /^"null" in sqlstate is neither/],
  [{ sqlstate: "{!}" }, /^"!" in sqlstate is neither/],
  [{ gap: "-1 us" }, "gap must be 0 or more"],
  [{ gap: "1001 years" }, "gap must be at most 1000 years"],
  [{ key: "" }, "key is empty"],
  [{ key: "é".repeat(1001) }, "key has 2002 bytes, at most 2000 are allowed"],
  [{ args: "5" }, "args must be an array or an object"],
  [{ args: '"x"' }, "args must be an array or an object"],
  [{ args: "null" }, "args must be an array or an object"],
  [{ args: JSON.stringify(["x".repeat(1_048_576)]) }, "args is larger than 1 MB"],
  [{ args: JSON.stringify(Array.from({ length: 65_536 }, () => 0)) }, "args has more than 65535 values"],
  [{ rule: "0 0 * * *", zone: "Europe/Belrin" }, /time zone "Europe\/Belrin" not recognized/],
  [{ zone: "UTC" }, /zone is set without rule/],
  [{ rule: "0 0 * * *", repeat: "1 day" }, /rule and repeat exclude each other/],
  [{ catchup: true, drift: true, repeat: "1 day" }, /catchup and drift exclude each other/],
  [{ rule: "SELECT now()", zone: "UTC" }, /zone is set for a rule that is a query/],
  [{ role: "me" }, /all run as its owner, not as me/, "0A000"],
];

const { rows } = await client.query<{ id: string }>(
  "INSERT INTO task (input, plan) VALUES ('SELECT 1', 'infinity') RETURNING id",
);

for (const [columns, message, code = "22023"] of refused) {
  const names = Object.keys(columns);
  const shown = JSON.stringify(columns).slice(0, 60);
  const error = { message, code };
  const values = Object.values(columns);

  test(`INSERT refuses ${shown}`, async () => {
    const places = names.map((_, index) => `$${index + 1}`).join();
    const insert = `INSERT INTO task (input, ${names.map(identifier).join()}) VALUES ('SELECT 1', ${places})`;
    await assert.rejects(client.query(insert, values), error);
  });

  test(`UPDATE refuses ${shown}`, async () => {
    const changes = names.map((name, index) => `${identifier(name)} = $${index + 1}`).join();
    await assert.rejects(client.query(`UPDATE task SET ${changes} WHERE id = ${rows[0]?.id}`, values), error);
  });
}

test("a task cannot wait for itself", async () => {
  await assert.rejects(
    client.query("INSERT INTO task (id, input, after) VALUES (1000000, '', '{1000000}')"),
    /after contains 1000000, which is not below its own id 1000000/,
  );
});
