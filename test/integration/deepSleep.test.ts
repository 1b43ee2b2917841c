import assert from "node:assert/strict";
import { Bell } from "../../src/manager/bell.js";
import { Workforce } from "../../src/manager/workforce.js";
import type { Client } from "../../src/shared/database.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { startService } from "../support/madeService.js";
import { openManager } from "../support/taskTables.js";

const database = await createDatabase();
const user = await database.connect();
const manager = await openManager(database.target);

/** What takes longer than this is deep sleep, in ms. */
const deepMs = 60_000;

/** Wakes as any bell does, but in deep sleep time passes when the test says so. */
class SleepersBell extends Bell {
  #sleeper: { readonly ms: number; readonly wake: (rung: boolean) => void } | null = null;
  #watcher: (() => void) | null = null;
  /** Whether it may have been rung while nobody waited. */
  #rung = false;

  override ring(): void {
    if (this.#sleeper !== null) return this.#end(true);
    this.#rung = true;
    super.ring();
  }

  override async wait(ms: number): Promise<boolean> {
    if (ms < deepMs || this.#rung) {
      this.#rung = false;
      return await super.wait(ms < deepMs ? ms : 0);
    }
    return await new Promise((wake) => {
      this.#sleeper = { ms, wake };
      this.#watcher?.();
    });
  }

  /** For how long the manager sleeps in case nobody wakes it, as soon as it does. */
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
class HearingWorkforce extends Workforce {
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
  assert.equal(await bell.asleep(), 5 * 60_000);
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
    assert.equal(await bell.asleep(), 5 * 60_000);
    bell.pass();
  }
  assert.equal(await bell.asleep(), 5 * 60_000);
  await service.stop();
});
