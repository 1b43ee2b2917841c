import assert from "node:assert/strict";
import { setTimeout as passed } from "node:timers/promises";
import { test } from "node:test";
import type { DatabaseError } from "pg";
import { OwedSuccessors } from "../../../../src/manager/upkeep/owedSuccessors.js";
import { expireTasks } from "../../../../src/manager/groups/expireTasks.js";
import { isRowError, RejectedRows, changeRows, tryInOrder } from "../../../../src/manager/sql/rejectedRows.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { createLog } from "../../../../src/shared/log.js";
import { serverError as refusal, stubClient } from "../../../support/stubClient.js";
import { silentLog } from "../../../support/taskTables.js";

/** A server that answers after `ms` milliseconds, and refuses some rows. */
class Server {
  readonly written: number[] = [];
  readonly refused: number[] = [];
  trips = 0;
  readonly #refuses: (row: number) => DatabaseError | null;
  readonly #ms: number;
  /** The connection over which the lock timeout is set. */
  readonly #client = stubClient(async () => ({ rows: [], rowCount: 0 }));

  constructor(ms: number, refuses: (row: number) => DatabaseError | null) {
    this.#ms = ms;
    this.#refuses = refuses;
  }

  async change(rows: readonly number[]): Promise<void> {
    this.trips += 1;
    await passed(this.#ms);
    for (const row of rows) {
      const error = this.#refuses(row);
      if (error !== null) throw error;
    }
    this.written.push(...rows);
  }

  /** Returns the rows that are left to change. */
  async once(rows: readonly number[]): Promise<number[]> {
    return await changeRows(
      this.#client,
      rows,
      (some) => this.change(some),
      (row) => void this.refused.push(row),
    );
  }
}

const bad = (row: number): boolean => row % 10 === 1;
const rows = (count: number): number[] => Array.from({ length: count }, (_, row) => row);
const sorted = (list: readonly number[]): number[] => list.toSorted((a, b) => a - b);

for (const [what, count, ms, code] of [
  ["a tenth of 200 rows", 200, 10, "P0001"],
  ["a tenth of 1,000 rows", 1_000, 1, "P0001"],
  ["a tenth of 200 rows, for a lock", 200, 10, "55P03"],
  ["one of 2 rows", 2, 60, "P0001"],
] as const) {
  test(`${what} that a slow server refuses: each call settles some of them, and the calls together all`, async () => {
    const server = new Server(ms, (row) => (bad(row) ? refusal(code, "a trigger") : null));
    for (let left = rows(count); left.length > 0;) {
      const settled = server.written.length + server.refused.length;
      left = await server.once(left);
      assert.ok(server.written.length + server.refused.length > settled);
    }
    assert.deepEqual(sorted(server.refused), rows(count).filter(bad));
    assert.deepEqual(
      sorted(server.written),
      rows(count).filter((row) => !bad(row)),
    );
  });
}

test("if all of 1,000 rows are refused, a slow server gets few more statements than there are rows", async () => {
  const server = new Server(10, () => refusal("P0001"));
  let calls = 0;
  for (let left = rows(1_000); left.length > 0; calls += 1) left = await server.once(left);
  assert.deepEqual(sorted(server.refused), rows(1_000));
  // Each call starts with all remaining rows together, and then tries parts of them.
  assert.ok(server.trips <= 1_000 + 33 * calls, `${server.trips} statements`);
});

test("an error that no row causes is thrown when everything that was sent has been answered", async () => {
  const server = new Server(1, (row) => (row === 7 ? refusal("P0001") : row === 3 ? refusal("40001") : null));
  await assert.rejects(server.once([1, 2, 3]), { code: "40001" });
  const other = new Server(1, (row) => {
    if (row === 500) return refusal(other.trips > 1 ? "57P01" : "P0001");
    return null;
  });
  await assert.rejects(other.once(rows(1_000)), { code: "57P01" });
  const before = other.written.length;
  await passed(20);
  assert.equal(other.written.length, before);
  assert.ok(before > 500);
});

test("a row that violates a unique index is tried once more before anything is omitted", async () => {
  const tried: string[] = [];
  /** An attempt that fails with these errors, one after the other, and then succeeds. */
  const attempt = (name: string, ...codes: string[]): ((rejection: DatabaseError) => Promise<void>) => {
    const left = [...codes];
    return async ({ code = "" }) => {
      tried.push(`${name} after ${code}`);
      const next = left.shift();
      if (next !== undefined) throw refusal(next, "a context");
    };
  };
  assert.equal(await tryInOrder(refusal("55P03"), [attempt("all", "23505"), attempt("less")]), null);
  assert.deepEqual(tried.splice(0), ["all after 55P03", "all after 55P03"]);
  const twice = [attempt("all", "23505", "23505"), attempt("less", "23505", "55P03")];
  assert.equal((await tryInOrder(refusal("55P03"), twice))?.code, "55P03");
  assert.deepEqual(tried, ["all after 55P03", "all after 55P03", "less after 23505", "less after 23505"]);
});

test("an exceeded limit, for example of an index, counts as an error of a row, as do errors of triggers in C", () => {
  for (const code of ["54000", "09000", "23503"]) assert.equal(isRowError(refusal(code)), true);
  for (const code of ["42501", "55000", "53100"]) assert.equal(isRowError(refusal(code)), false);
});

test("an error that may pass counts as an error of a row if the server gives its context", () => {
  for (const code of ["55P03", "40001", "40P01", "57014"]) {
    assert.equal(isRowError(refusal(code)), false);
    assert.equal(isRowError(refusal(code, "PL/pgSQL function count() line 1")), true);
  }
  for (const code of ["57P01", "53300", "08006"])
    assert.equal(isRowError(refusal(code, "PL/pgSQL function count() line 1")), false);
});

test("an error that may pass is retried soon without being logged; any other error is logged once", () => {
  const said: string[] = [];
  const log = createLog({ level: "error", name: "test", write: (line) => said.push(line) });
  const rejectedRows = new RejectedRows(log);
  const locked = refusal("55P03", "a trigger");
  for (let times = 0; times < 20; times += 1) rejectedRows.add("1", locked, "refused");
  assert.deepEqual(said, []);
  assert.ok(rejectedRows.nextRetryMs <= 5_000);
  for (let times = 0; times < 2; times += 1) rejectedRows.add("1", refusal("P0001"), "refused");
  assert.equal(said.length, 1);
});

test("of the rows whose delay is over, the one that has not been tried for the longest time comes first", async () => {
  const rejectedRows = new RejectedRows(silentLog);
  for (const id of ["1", "2", "3"]) rejectedRows.add(id, refusal("P0001"), "refused");
  while (rejectedRows.retryableIds.length < 3) await passed(20);
  rejectedRows.postpone("1");
  rejectedRows.add("2", refusal("P0001"), "refused");
  while (rejectedRows.retryableIds.length < 3) await passed(20);
  assert.deepEqual(rejectedRows.retryableIds, ["3", "1", "2"]);
});

test("if no row is late, nothing more is sent to the server", async () => {
  let asked = 0;
  const client = stubClient(async () => {
    asked += 1;
    return { rows: [], rowCount: 0 };
  });
  const table = taskTable("public", "task");
  const owed = new OwedSuccessors({ table, log: silentLog });
  const rejectedRows = new RejectedRows(silentLog);
  const outcome = await expireTasks(client, table, [1], 10, { except: [], rejectedRows, owed });
  assert.deepEqual(outcome, { expired: 0, locked: [], again: false });
  assert.equal(asked, 1);
});
