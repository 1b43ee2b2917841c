import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { mock } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { Manager } from "../../../src/manager/manager.js";
import type { Entry } from "../../../src/shared/config/types.js";
import { defaultParameters } from "../../../src/shared/config/parameters.js";
import { backendPid, connectionLost } from "../../../src/shared/postgres/client.js";
import { PgTaskError } from "../../../src/shared/errors.js";
import type { FromManager } from "../../../src/shared/ipc/managerMessages.js";
import { ClusterStatusBoard } from "../../../src/supervisor/clusterStatusBoard.js";
import { ConnectionWatchdog } from "../../../src/shared/postgres/connectionWatchdog.js";
import { ManagerRegistry } from "../../../src/supervisor/managerRegistry.js";
import { ManagerThread } from "../../../src/supervisor/managerThread.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { waitForRow } from "../../support/tasks.js";
import { makeEntry, silentLog as log } from "../../support/taskTables.js";

const database = await createDatabase();

/** Counts events. `reaches` waits for a count. */
class Counter extends EventEmitter {
  count = 0;

  add(): void {
    this.count += 1;
    this.emit("added");
  }

  async reaches(count: number): Promise<void> {
    while (this.count < count) await once(this, "added");
  }
}

/** Calls `work`. In the meantime, no timer of this thread fires. */
async function withoutTimers(work: () => Promise<void>): Promise<void> {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    await work();
  } finally {
    mock.timers.reset();
  }
}

test("a manager that waits for its server retries as soon as it is told to", async () => {
  const entry = makeEntry({ ...database.target, port: await freePort() });
  const waited = new Counter();
  await withoutTimers(async () => {
    const send = ({ type }: FromManager): void => {
      if (type === "unavailable") waited.add();
    };
    const manager = new Manager({ entry, takesOver: false, managers: 1 }, { send, log, threadLog: log });
    await manager.start();
    for (let tries = 1; tries <= 3; tries += 1) {
      await waited.reaches(tries);
      manager.retry();
    }
    await waited.reaches(4);
    await manager.stop();
  });
});

const createRegistry = (entries: Entry[], ensure: (entry: Entry) => Promise<void>): ManagerRegistry =>
  new ManagerRegistry(
    { file: null, control: database.target, parameters: defaultParameters(), entries },
    { rolesAndDatabases: { ensure }, board: new ClusterStatusBoard(), log, writeLine: () => {} },
  );

test("when a server accepts another entry, exactly the entries that wait for it retry", async () => {
  const { target } = database;
  const works = makeEntry(target, { table: "works", fixed: { table: "works" } });
  const waits = makeEntry(target, { table: "waits" });
  const lacks = makeEntry(target, { table: "lacks" });
  const elsewhere = makeEntry({ ...target, port: await freePort() }, { table: "elsewhere" });
  const entries = [works, waits, lacks, elsewhere];
  const tries = new Map(entries.map(({ table }) => [table, new Counter()]));
  const triesOf = ({ table }: Entry): Counter => tries.get(table) ?? assert.fail(table);
  const open = new AbortController();
  const ensure = async (entry: Entry): Promise<void> => {
    triesOf(entry).add();
    if (entry === works) await once(open.signal, "abort");
    else if (entry === lacks) throw new PgTaskError("SCHEMA_NOT_ALLOWED", "no");
    else throw new PgTaskError("CONNECTION_FAILED", "nobody is there");
  };
  const registry = createRegistry(entries, ensure);
  await withoutTimers(async () => {
    const started = registry.start({ takesOver: false, afterFrozen: false });
    await Promise.all(entries.map((entry) => triesOf(entry).reaches(1)));
    // The supervisor calls this method when its own connection is open.
    registry.retryOnServer(target);
    await triesOf(waits).reaches(2);
    open.abort();
    await started;
    await triesOf(waits).reaches(3);
    const counts = entries.map((entry) => triesOf(entry).count);
    await registry.stop(0);
    assert.deepEqual(counts, [1, 3, 1, 1]);
  });
});

test("when a manager loses its connection, exactly the others on its server probe theirs", async (context) => {
  const { target } = database;
  const own = (table: string, where = target): Entry => makeEntry(where, { table, fixed: { table } });
  // To pg-task, the same server under another name is another one.
  const entries = [own("lost"), own("same"), own("too"), own("other", { ...target, host: "localhost" })];
  const registry = createRegistry(entries, async () => {});
  context.after(() => registry.stop(0));
  await registry.start({ takesOver: false, afterFrozen: false });
  const probe = context.mock.method(ManagerThread.prototype, "probe");
  const probed = new Promise<void>((resolve) => probe.mock.mockImplementation(() => resolve()));
  const user = await database.connect();
  await user.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'pg_work public lost %'`);
  await probed;
  assert.equal(probe.mock.callCount(), 2);
});

test("in deep sleep, a manager among many seldom probes its connection, but does so when told", async (context) => {
  const user = await database.connect();
  const fixed = { table: "asleep", sleep: 100 };
  const entry = makeEntry(database.target, { table: "asleep", fixed, parameters: { "pg_task.idle": 1 } });
  const manager = new Manager({ entry, takesOver: false, managers: 200 }, { send: () => {}, log, threadLog: log });
  context.after(() => manager.stop());
  await manager.start();
  // Alone, it would not be silent for so long.
  await waitForRow(
    user,
    `SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg_work public asleep %'
       AND state_change < clock_timestamp() - interval '7 seconds'`,
  );
  // Before a cycle, an answer is expected.
  const expectAnswer = context.mock.method(ConnectionWatchdog.prototype, "expectAnswer");
  const asked = new Promise<void>((resolve) => expectAnswer.mock.mockImplementation(() => resolve()));
  await user.query("SELECT pg_notify('pg_task_' || to_regclass('asleep')::oid, '')");
  await asked;
  const probeNow = context.mock.method(ConnectionWatchdog.prototype, "probeNow");
  manager.probe();
  assert.equal(probeNow.mock.callCount(), 1);
});

test("the error for a terminated connection quotes the server", async () => {
  const [client, other] = [await database.connect(), await database.connect()];
  assert.equal(connectionLost(client, "our").message, "our connection ended");
  const ended = new Promise<void>((resolve) => void client.once("end", resolve));
  await other.query("SELECT pg_terminate_backend($1)", [backendPid(client)]);
  await ended;
  const { code, message } = connectionLost(client, "our");
  assert.equal(code, "CONNECTION_LOST");
  assert.equal(
    message,
    "the server ended our connection: terminating connection due to administrator command (SQLSTATE 57P01)",
  );
});
