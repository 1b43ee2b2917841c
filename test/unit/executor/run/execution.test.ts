import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { Execution } from "../../../../src/executor/run/execution.js";
import { PipelinedMessages } from "../../../../src/executor/run/pipelinedMessages.js";
import { localProof } from "../../../../src/executor/run/proof.sql.js";
import { SettingsSql } from "../../../../src/executor/run/runSettings.sql.js";
import { ProtocolConnection, type Receive } from "../../../../src/shared/postgres/protocol/connection.js";
import { defaultRun } from "../../../support/executors.js";

const table = { schema: "public", table: "task" };
const run = { ...defaultRun, input: "SELECT large FROM table", atomic: true };

/** Collects the receivers of answers and never answers. */
class SilentConnection extends ProtocolConnection {
  readonly receivers: Receive[] = [];

  constructor() {
    super({ pid: 1, stream: new PassThrough() }, () => 1 << 30);
  }

  override guard(_: unknown, receive: Receive): void {
    this.receivers.push(receive);
  }

  override call(_: Buffer, receive: Receive): void {
    this.receivers.push(receive);
  }

  override statement(_: string, receive: Receive): void {
    this.receivers.push(receive);
  }

  override sync(): void {}
}

test("a run cancelled to be retried is cancelled only once, however long the session repair takes", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const wire = new SilentConnection();
  const session = { owner: "1", initialState: [null, null, null, null, "1", "2"], ownTimeoutMs: 0 };
  const messages = new PipelinedMessages({ ...table, resetFunction: "reset" }, session);
  let cancels = 0;
  let done = 0;
  const execution = new Execution(run, {
    wire,
    messages,
    settings: new SettingsSql(table),
    outputLimit: 64 << 20,
    proof: localProof("finish", "1"),
    requestCancel: () => (cancels += 1),
  });
  const position = { previous: null, isFollowed: false, permit: 0 };
  execution.send(position, { started() {}, cancelRequested() {}, done: () => (done += 1) });
  const [opening, input, ...others] = wire.receivers;
  opening?.({ type: "passed" });
  input?.({ type: "announced", bytes: 60 << 20 });
  assert.deepEqual([cancels, execution.cancellation.isPending], [1, true]);
  const message = "canceling statement due to user request";
  input?.({ type: "error", error: { severity: "ERROR", code: "57014", message } });
  for (const each of [input, ...others]) each?.({ type: "skipped", status: "E" });
  assert.equal(done, 1);
  execution.cancelAnswered();
  context.mock.timers.tick(60_000);
  assert.equal(cancels, 1);
  assert.equal(execution.outcome(), "stepwise");
});
