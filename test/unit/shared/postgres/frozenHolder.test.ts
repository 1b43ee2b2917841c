import assert from "node:assert/strict";
import { test } from "node:test";
import { createLog } from "../../../../src/shared/log.js";
import { FrozenHolder } from "../../../../src/shared/postgres/frozenHolder.js";
import { stubClient } from "../../../support/stubClient.js";

const log = createLog({ level: "silent", name: "test", write: () => {} });

/** A server with one holder of the lock, which `holder` replaces. Records what it is asked. */
function serverWith(frozenMs: number) {
  const asked: string[] = [];
  const holderNow = { pid: 1, owner: "1 then", address: null, works: false, isPgTask: true, isTrusted: true };
  const state = { holder: holderNow, ended: 0 };
  const client = stubClient((text) => {
    const ends = text.includes("pg_terminate_backend");
    asked.push(ends ? "end" : "who");
    return Promise.resolve({ rows: [ends ? { ended: true } : state.holder], rowCount: 1 });
  });
  const askAll = (): Promise<void> => {
    asked.push("ask");
    return Promise.resolve();
  };
  const holder = new FrozenHolder(client, askAll, {
    lock: { class: 1, key: "1" },
    frozenMs: () => frozenMs,
    isPgTaskSql: () => "true",
    lines: { ended: "ended", refused: "refused", foreign: "foreign", foreignEnded: "foreign ended" },
    fields: {},
    ended: () => (state.ended += 1),
    log,
  });
  return { asked, state, holder };
}

void test("a holder that does not answer in time is ended", async () => {
  const { asked, state, holder } = serverWith(3000);
  await holder.check(200);
  for (let ms = 0; ms < 2800; ms += 200) await holder.check(200);
  assert.deepEqual(asked, ["who", "ask"]);
  await holder.check(200);
  assert.deepEqual([asked, state.ended], [["who", "ask", "who", "end"], 1]);
});

void test("an answer gives the holder time again, and it is asked again later", async () => {
  const { asked, state, holder } = serverWith(3000);
  for (let round = 0; round < 20; round += 1) {
    for (let ms = 0; ms < 2800; ms += 200) await holder.check(200);
    holder.answered(1);
  }
  assert.ok(asked.filter((each) => each === "ask").length >= 20);
  assert.equal(state.ended, 0);
  // The answer of another process does not count.
  for (let ms = 0; ms < 4200; ms += 200) {
    await holder.check(200);
    holder.answered(2);
  }
  assert.equal(state.ended, 1);
});

void test("with pg_conf.frozen = 0, nobody is asked or ended", async () => {
  const { asked, holder } = serverWith(0);
  for (let ms = 0; ms < 100_000; ms += 200) await holder.check(200);
  assert.deepEqual([...new Set(asked)], ["who"]);
});

void test("a holder whose backend works is left alone, because it has not passed the question on", async () => {
  const { state, holder } = serverWith(1000);
  state.holder = { ...state.holder, works: true };
  for (let ms = 0; ms < 60_000; ms += 200) await holder.check(200);
  assert.equal(state.ended, 0);
  state.holder = { ...state.holder, works: false };
  for (let ms = 0; ms < 1200; ms += 200) await holder.check(200);
  assert.equal(state.ended, 1);
});

void test("a holder that took the lock meanwhile is asked before it is ended", async () => {
  const { asked, state, holder } = serverWith(1000);
  await holder.check(200);
  state.holder = { ...state.holder, owner: "1 later" };
  for (let ms = 0; ms < 1000; ms += 200) await holder.check(200);
  assert.deepEqual([asked, state.ended], [["who", "ask", "who"], 0]);
  for (let ms = 0; ms < 1200; ms += 200) await holder.check(200);
  assert.deepEqual([asked.slice(3), state.ended], [["who", "ask", "who", "end"], 1]);
});
