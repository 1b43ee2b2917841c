import assert from "node:assert/strict";
import { WakeSignal } from "../../../../src/shared/wakeSignal.js";
import { PoolScaler } from "../../../../src/manager/sessions/poolScaler.js";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { NoPruning, startService } from "../../../support/madeService.js";
import { openManager } from "../../../support/taskTables.js";

const database = await createDatabase();
const user = await database.connect();
const manager = await openManager(database.target);

/** No pause but those that the tests are about is as long as this, in ms. */
const longMs = 60_000;
const fiveMinutesMs = 5 * 60_000;

/** Wakes as any bell does, but in a long pause time passes when the test says so. */
class SleepersBell extends WakeSignal {
  #sleeper: { readonly ms: number; readonly wake: (rung: boolean) => void } | null = null;
  #watcher: (() => void) | null = null;
  /** Whether it may have been rung while nobody waited. */
  #rung = false;

  override notify(): void {
    if (this.#sleeper !== null) return this.#end(true);
    this.#rung = true;
    super.notify();
  }

  override async wait(ms: number): Promise<boolean> {
    if (ms < longMs || this.#rung) {
      this.#rung = false;
      return await super.wait(ms < longMs ? ms : 0);
    }
    return await new Promise((wake) => {
      this.#sleeper = { ms, wake };
      this.#watcher?.();
    });
  }

  /** For how long the manager pauses in case nobody wakes it, as soon as it does. */
  async asleep(): Promise<number> {
    if (this.#sleeper === null) await new Promise<void>((resolve) => (this.#watcher = resolve));
    return this.#sleeper?.ms ?? 0;
  }

  get isAsleep(): boolean {
    return this.#sleeper !== null;
  }

  /** Lets that time pass. */
  pass(): void {
    this.#end(false);
  }

  #end(rung: boolean): void {
    const sleeper = this.#sleeper;
    this.#sleeper = null;
    sleeper?.wake(rung);
  }
}

let hear = (): void => {};

/** Resolves when the manager has come upon a task that could start. */
const found = new Promise<void>((resolve) => (hear = resolve));

/** Starts nothing for them. */
class HearingWorkforce extends PoolScaler {
  override async grow(_: Client, more: number): Promise<void> {
    if (more > 0) hear();
  }
}

test("§9 in deep sleep the table is checked every five minutes, which finds a task that nothing told of", async () => {
  const bell = new SleepersBell();
  const service = await startService(manager, database.target, {
    bell,
    workforce: HearingWorkforce,
  });
  assert.equal(await bell.asleep(), fiveMinutesMs);
  await user.query("ALTER TABLE task DISABLE TRIGGER USER");
  await user.query("INSERT INTO task (input) VALUES ('SELECT 1')");
  // What a connection is told comes before the answer to its next query.
  await manager.query("SELECT 1");
  assert.ok(bell.isAsleep, "nothing has told of the task");
  bell.pass();
  await found;
  await service.stop();
});

test("§9 a check that finds nothing leaves the manager in deep sleep, for five minutes more", async () => {
  await user.query("TRUNCATE task");
  const bell = new SleepersBell();
  const service = await startService(manager, database.target, { bell });
  for (let time = 0; time < 3; time += 1) {
    assert.equal(await bell.asleep(), fiveMinutesMs);
    bell.pass();
  }
  assert.equal(await bell.asleep(), fiveMinutesMs);
  await service.stop();
});

test("§9 the table is checked every pg_task.sleep, and every five minutes after pg_task.idle empty checks", async () => {
  const bell = new SleepersBell();
  const settings = { sleepMs: 100_000, idle: 3 };
  const service = await startService(manager, database.target, {
    bell,
    settings,
    pruning: NoPruning,
  });
  const pauses = async (): Promise<number[]> => {
    const all: number[] = [];
    for (let time = 0; time < 5; time += 1) {
      all.push(await bell.asleep());
      bell.pass();
    }
    await bell.asleep();
    return all;
  };
  const expected = [100_000, 100_000, 100_000, fiveMinutesMs, fiveMinutesMs];
  assert.deepEqual(await pauses(), expected);
  // Somebody tells of a change: it is awake again, for as long.
  bell.pass();
  await bell.asleep();
  service.wake();
  assert.deepEqual(await pauses(), expected);
  await service.stop();
});
