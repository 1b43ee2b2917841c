import assert from "node:assert/strict";
import { test } from "node:test";
import { findEntry } from "../../../src/cli/import/place.js";
import { notMapped } from "../../../src/cli/import/source.js";
import { makeEntry } from "../../support/taskTables.js";

const entry = (database: string, user: string, table = "task") =>
  makeEntry({ host: "db.example.com", port: 5432, user, database, sslmode: "disable", connectTimeoutMs: 0 }, { table });
const [shop, alices, stock] = [entry("shop", "app"), entry("shop", "alice"), entry("stock", "app")];

/** Why there is no entry. */
const problem = (found: unknown): string => (typeof found === "string" ? found : "");

const job = (database: string | null, owner: string | null, host?: string) =>
  notMapped({ key: "k", id: "1", name: null, database, owner, host, active: true });

void test("findEntry finds the entry with the job's database and owner, and no other", () => {
  const entries = [shop, alices, stock];
  const find = (...[database, owner, host]: Parameters<typeof job>) =>
    findEntry(job(database, owner, host), entries, false);
  assert.equal(find("shop", "alice"), alices);
  assert.equal(find("shop", "app", "/var/run/postgresql"), shop);
  assert.equal(find("stock", null, "db.example.com"), stock);
  assert.equal(find("stock", "app", "other.example.com"), "no entry for the database stock on other.example.com");
  assert.equal(find("none", "app"), "no entry for the database none");
  assert.match(problem(find("shop", null)), /several entries fit: choose one/);
  assert.equal(
    find("shop", "bob"),
    "owner bob: needs users; or an entry with this user; or --any-owner, to let it run as app or alice",
  );
  assert.equal(findEntry(job("stock", "bob"), entries, true), stock);
  assert.equal(findEntry(job("shop", "alice"), entries, true), alices);
  assert.match(problem(findEntry(job("shop", "bob"), entries, true)), /several entries fit/);
  assert.match(
    problem(findEntry(job("shop", "app"), [shop, entry("shop", "app", "other")], false)),
    /several entries fit/,
  );
});
