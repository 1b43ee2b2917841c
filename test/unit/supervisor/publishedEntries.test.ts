import assert from "node:assert/strict";
import { test } from "node:test";
import type { Entry } from "../../../src/shared/config/types.js";
import { loadConfiguration } from "../../../src/shared/config/loadConfiguration.js";
import { areSame, describeOtherEntries, hashEntries } from "../../../src/supervisor/publishedEntries.js";
import { configFolder } from "../../support/configFile.js";

const cwd = await configFolder({
  url: "postgres://db.example/main",
  "pg_task.json": Array.from({ length: 101 }, (_, index) => ({ table: `task${index}` })),
});
const { entries } = await loadConfiguration({ file: "pg_task.json", cwd, env: {} });
const hashes = (first: number, end: number): ReadonlySet<number> => hashEntries("main", entries.slice(first, end));
const describe = (own: ReadonlySet<number>, leader: ReadonlySet<number>, named: readonly Entry[]): string | null =>
  describeOtherEntries(own, leader, { entries: named, who: "it" });

test("names the entries that differ, as far as this configuration has them", () => {
  const [first, second] = entries;
  assert.ok(first !== undefined && second !== undefined);
  assert.equal(describe(hashes(0, 2), hashes(0, 2), entries), null);
  const other = "only the leader has 1 that this configuration does not name";
  assert.equal(describe(hashes(1, 2), hashes(0, 1), [second]), `only it has ${second.key}; ${other}`);
});

test("takes few of the server's locks for many entries, and only says that they differ", () => {
  assert.equal(hashes(0, 50).size, 51);
  assert.equal(hashes(0, 101).size, 3);
  assert.ok(areSame(hashes(0, 101), hashEntries("main", entries.toReversed())));
  const unknown = "which ones is not known, because there are more than 50";
  assert.equal(describe(hashes(0, 101), hashes(0, 100), entries), unknown);
  assert.equal(describe(hashes(0, 101), hashes(0, 1), entries), unknown);
});
