import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import type { Client } from "pg";
import { WorkCycle } from "../../../../src/manager/loop/workCycle.js";
import type { PendingResults } from "../../../../src/manager/results/pendingResults.js";
import { createComponents } from "../../../support/managerComponents.js";
import { openSession } from "../../../support/openSession.js";
import { serverError, stubClient } from "../../../support/stubClient.js";

/** The server's answer to a statement that writes this row. */
type Answer = "written" | "locked" | "refused" | "deadlock" | "cut off";

/**
 * Creates a connection to a server that gives these answers. The ids of the rows that it writes are added to `written`.
 */
function fakeServer(answers: ReadonlyMap<string, Answer>, written: string[]): Client {
  return stubClient(async (_, [given], name) => {
    // Other statements, such as the one that reads the table's columns, get an empty answer.
    if (!name.startsWith("complete ")) return { rows: [], rowCount: 0 };
    // The plain completion sends the text of an array.
    const ids: readonly string[] = Array.isArray(given) ? given : String(given).slice(1, -1).split(",");
    const found = ids.map((id) => answers.get(id));
    if (name === "complete plain" && found.includes("locked")) throw serverError("55P03");
    if (found.includes("cut off")) throw new Error("Connection terminated unexpectedly");
    if (found.includes("refused")) throw serverError("P0001");
    if (found.includes("deadlock")) throw serverError("40P01");
    written.push(...ids.filter((id) => answers.get(id) === "written"));
    const rows = ids
      .filter((id) => answers.get(id) === "locked")
      .map((id) => ({ id, since: null, holds: true, state: null, retried: null, awaited: false, reason: null }));
    return { rows, rowCount: rows.length };
  });
}

const request = { checkRuns: false, notified: false, polls: false };

/** Adds a result. If it is plain, it changes nothing but its own row. */
function addResult(pendingResults: PendingResults, isPlain: boolean, id = "1"): void {
  const result = { session: 1, id, start: "", stop: "", output: "", error: null, sqlstate: null, committed: false };
  const task = { hash: 1, max: 0, mayPause: false };
  pendingResults.add({ outcome: "ended", ...result }, "owner", { task, hasPlainEnd: isPlain });
}

test("each result is either written once or kept, whatever the server answers", async () => {
  const answer = fc.constantFrom<Answer>("written", "written", "locked", "refused", "deadlock", "cut off");
  await fc.assert(
    fc.asyncProperty(fc.array(answer, { maxLength: 12 }), fc.boolean(), async (answers, plain) => {
      const components = createComponents();
      const { pendingResults } = components;
      const ids = answers.map((_, index) => String(index + 1));
      for (const id of ids) addResult(pendingResults, plain, id);
      const written: string[] = [];
      const client = fakeServer(new Map(ids.map((id, index) => [id, answers[index]!])), written);
      const cut = answers.includes("cut off");
      const cycle = new WorkCycle(components).run(client, request);
      await (cut ? cycle.catch(() => {}) : cycle);
      const kept = ids.filter((id) => pendingResults.has({ id, owner: "owner" }));
      assert.deepEqual(
        [...written, ...kept].toSorted((a, b) => Number(a) - Number(b)),
        ids,
      );
    }),
  );
});

for (const [what, statement, before, recalled] of [
  ["is stopped during its recall is checked after the recall", "unwanted runs", "1", "2"],
  ["is changed during its recall, and stays queued, is compared after the recall", "changed tasks", "2", "3"],
] as const)
  test(`a task that ${what}`, async () => {
    const { sessions, groups, assign, receive } = openSession();
    assign(...["1", "2", "3"].slice(0, Number(recalled)));
    const cycle = new WorkCycle(Object.assign(createComponents(), { sessions, groups }));
    const looks: unknown[] = [];
    const client = stubClient(async (_, [ids], name) => {
      if (name === statement) looks.push(ids);
      return { rows: [], rowCount: 0 };
    });
    sessions.recalls.recall([recalled], true);
    await cycle.run(client, { ...request, checkRuns: true, notified: true });
    assert.deepEqual(looks, [[before]]);
    receive({ type: "results", results: [{ outcome: "released", session: 1, id: "1" }] });
    receive({ type: "recalled", session: 1, ids: [recalled], queuedBehind: "1", sent: null });
    await cycle.run(client, request);
    assert.deepEqual(looks, [[before], [recalled]]);
  });

/** The answer of a small claim that has read everything and found nothing. */
const nothingDue = { ms: null, must_look_up: false, settings_version: "", complete: true, due_id: null };

/**
 * Creates a cycle whose server answers small claims with this row, and returns the names of the statements that each
 * cycle sends.
 */
async function createWatchedCycle(smallClaim: () => object): Promise<{
  readonly pendingResults: PendingResults;
  /** Runs a cycle, and returns the names of the statements that look for tasks or write results. */
  readonly run: (some?: Partial<typeof request>) => Promise<string[]>;
}> {
  const components = createComponents();
  const { pendingResults } = components;
  const cycle = new WorkCycle(components);
  const names: string[] = [];
  const client = stubClient(async (_, __, name) => {
    // The name of the full completion contains the columns of the table.
    if (/^(claim|scan|next|complete)/.test(name)) names.push(name.replace(/ \d.*/, ""));
    return { rows: name === "claim small" ? [smallClaim()] : [], rowCount: 0 };
  });
  const run = async (some: Partial<typeof request> = {}): Promise<string[]> => {
    await cycle.run(client, { ...request, ...some });
    return names.splice(0);
  };
  // At first it is not known whether a planned task has become due.
  assert.deepEqual(await run(), ["scan groups", "next plan"]);
  return { pendingResults, run };
}

test("a small claim replaces the scan, unless it leaves tasks to a full claim", async () => {
  let isComplete = true;
  const { run } = await createWatchedCycle(() => ({ ...nothingDue, complete: isComplete }));
  const changed = { checkRuns: true, notified: true };
  assert.deepEqual(await run(changed), ["claim small"]);
  assert.deepEqual(await run({ polls: true }), ["claim small"]);
  isComplete = false;
  assert.deepEqual(await run(changed), ["claim small", "scan groups", "next plan"]);
  isComplete = true;
  assert.deepEqual(await run(changed), ["claim small"]);
});

test("a cycle looks for tasks only if there may be new ones", async () => {
  const { pendingResults, run } = await createWatchedCycle(() => nothingDue);
  await run({ checkRuns: true, notified: true });
  assert.deepEqual(await run(), []);
  addResult(pendingResults, true);
  assert.deepEqual(await run(), ["complete plain"]);
  addResult(pendingResults, false);
  // The statement may have planned the task again.
  assert.deepEqual(await run(), ["complete", "claim small"]);
  assert.deepEqual(await run(), ["claim small"]);
  assert.deepEqual(await run(), []);
});

test("a look that has failed is repeated by the next cycle", async () => {
  let fails = true;
  const { run } = await createWatchedCycle(() => {
    if (fails) throw serverError("55P03");
    return nothingDue;
  });
  assert.deepEqual(await run({ checkRuns: true, notified: true }), ["claim small"]);
  fails = false;
  assert.deepEqual(await run(), ["claim small"]);
  assert.deepEqual(await run(), []);
});
