import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { WakeSignal } from "../../../../src/shared/wakeSignal.js";
import { SessionAccess } from "../../../../src/manager/sessions/sessionAccess.js";
import { test } from "../../../support/limitedTest.js";
import { hearingGrowth, startManagerLoop, withoutPruning } from "../../../support/managerLoop.js";
import { openTable, silentLog } from "../../../support/taskTables.js";

const { database, user, manager } = await openTable();

/** Waits of at least this length, in ms, are the ones under test. */
const longMs = 60_000;
const fiveMinutesMs = 5 * 60_000;

/** A wake signal whose long waits end only when it is notified, or when the test calls `pass`. */
class SleepersBell extends WakeSignal {
  #sleeper: { readonly ms: number; readonly wake: (rung: boolean) => void } | null = null;
  #watcher: (() => void) | null = null;
  /** Whether the signal may have been notified while nobody waited for it. */
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

  /** Resolves with the length of the manager's next long wait, in ms, when that wait has begun. */
  async asleep(): Promise<number> {
    if (this.#sleeper === null) await new Promise<void>((resolve) => (this.#watcher = resolve));
    return this.#sleeper?.ms ?? 0;
  }

  get isAsleep(): boolean {
    return this.#sleeper !== null;
  }

  /** Ends the long wait as if its time had passed. */
  pass(): void {
    this.#end(false);
  }

  #end(rung: boolean): void {
    const sleeper = this.#sleeper;
    this.#sleeper = null;
    sleeper?.wake(rung);
  }
}

test("§9 in deep sleep the table is checked every five minutes, which finds a task without a notification", async () => {
  const signal = new SleepersBell();
  /** Tells when the manager has found a task that could start. */
  const news = new EventEmitter();
  const found = once(news, "found");
  const service = await startManagerLoop(manager, database.target, {
    components: (components) => ({
      wakeSignal: signal,
      ...hearingGrowth(components, () => void news.emit("found")),
    }),
  });
  assert.equal(await signal.asleep(), fiveMinutesMs);
  await user.query("ALTER TABLE task DISABLE TRIGGER USER");
  await user.query("INSERT INTO task (input) VALUES ('SELECT 1')");
  // A notification would have arrived before the answer to the connection's next query.
  await manager.query("SELECT 1");
  assert.ok(signal.isAsleep, "nothing has told of the task");
  signal.pass();
  await found;
  await service.stop();
});

test("§9 a check that finds nothing leaves the manager in deep sleep, for five minutes more", async () => {
  await user.query("TRUNCATE task");
  const signal = new SleepersBell();
  const service = await startManagerLoop(manager, database.target, { components: () => ({ wakeSignal: signal }) });
  for (let time = 0; time < 3; time += 1) {
    assert.equal(await signal.asleep(), fiveMinutesMs);
    signal.pass();
  }
  assert.equal(await signal.asleep(), fiveMinutesMs);
  await service.stop();
});

test("§9 the table is checked every pg_task.sleep, and every five minutes after pg_task.idle empty checks", async () => {
  const signal = new SleepersBell();
  const settings = { sleepMs: 100_000, idle: 3 };
  const service = await startManagerLoop(manager, database.target, {
    settings,
    components: (components) => ({ wakeSignal: signal, ...withoutPruning(components) }),
  });
  const pauses = async (): Promise<number[]> => {
    const all: number[] = [];
    for (let time = 0; time < 5; time += 1) {
      all.push(await signal.asleep());
      signal.pass();
    }
    await signal.asleep();
    return all;
  };
  const expected = [100_000, 100_000, 100_000, fiveMinutesMs, fiveMinutesMs];
  assert.deepEqual(await pauses(), expected);
  // After a notified change, the manager makes the same waits again.
  signal.pass();
  await signal.asleep();
  service.wake();
  assert.deepEqual(await pauses(), expected);
  await service.stop();
});

test("the login is checked with each check of the table in deep sleep, and sooner while it is refused", async () => {
  await user.query("TRUNCATE task");
  const signal = new SleepersBell();
  const logins: string[] = [];
  const answers = new EventEmitter();
  const firstLogin = once(answers, "1");
  const lastLogin = once(answers, "4");
  const answered = (answer: string) => answers.emit(String(logins.push(answer)));
  const sessionAccess = new SessionAccess({
    send: () => {},
    sessions: { size: 0 },
    get target() {
      const isRefused = logins.length === 1 || logins.length === 2;
      return isRefused ? { ...database.target, database: "none" } : database.target;
    },
    ending: new AbortController(),
    restartMs: 0,
    wakeSignal: signal,
    log: silentLog,
  });
  Object.assign(sessionAccess, { accepted: () => answered("accepted"), refused: () => answered("refused") });
  const service = await startManagerLoop(manager, database.target, {
    components: (components) => ({
      wakeSignal: signal,
      ...withoutPruning(components),
      sessionAccess,
    }),
  });
  // The first check of the table is the one after which the manager falls asleep.
  await signal.asleep();
  assert.deepEqual(logins, []);
  signal.pass();
  await signal.asleep();
  await firstLogin;
  assert.deepEqual(logins, ["accepted"]);
  // No more long waits end until the login is accepted again.
  signal.pass();
  await lastLogin;
  assert.deepEqual(logins, ["accepted", "refused", "refused", "accepted"]);
  await service.stop();
});
