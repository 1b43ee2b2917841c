import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { connectManager } from "../../../../src/manager/loop/connectManager.js";
import { readSettings, type ManagerSettings } from "../../../../src/manager/model/settings.js";
import { identifier, literal } from "../../../../src/shared/postgres/quoting.js";
import { createLog } from "../../../../src/shared/log.js";
import { createDatabase } from "../../../support/database.js";
import { makeEntry, type EntryOptions } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const client = await database.connect();

interface Read {
  readonly settings: ManagerSettings;
  readonly refused: { setting: string; value: string; used: unknown }[];
}

/** Reads the settings as a manager does after connecting. */
async function read(given: EntryOptions = {}): Promise<Read> {
  const entry = makeEntry(database.target, given);
  const lines: string[] = [];
  const log = createLog({ level: "warn", name: "test", write: (line) => lines.push(line) });
  const manager = await connectManager(entry);
  try {
    const settings = await readSettings(manager, entry, log);
    const refused = lines.map((line) => {
      const { setting, value, used } = JSON.parse(line);
      return { setting, value, used };
    });
    return { settings, refused };
  } finally {
    await manager.end();
  }
}

const onDatabase = `DATABASE ${database.target.database}`;

async function withDatabase<T>(settings: Record<string, string>, work: () => Promise<T>): Promise<T> {
  for (const [name, value] of Object.entries(settings)) {
    await client.query(`ALTER ${onDatabase} SET ${quoted(name)} = ${literal(value)}`);
  }
  try {
    return await work();
  } finally {
    await client.query(`ALTER ${onDatabase} RESET ALL`);
  }
}

/** Quotes each part of a setting's name, because some parts are reserved words. */
const quoted = (name: string): string => name.split(".").map(identifier).join(".");

/** The settings, each with its field, a value in the file, and the field's value for it. */
const all = [
  ["pg_task.sleep", "sleepMs", 7, 7],
  ["pg_task.reset", "resetMs", "2 sec", 2000],
  ["pg_task.idle", "idle", 7, 7],
  ["pg_task.limit", "limit", 7, 7],
  ["pg_task.fetch", "fetch", 7, 7],
  ["pg_task.run", "run", 7, 7],
  ["pg_task.output", "outputLimit", 7, 7],
  ["pg_task.crash", "crash", 7, 7],
  ["pg_work.close", "closeMs", 7, 7],
  ["pg_work.fetch", "batch", 7, 7],
  ["pg_work.restart", "restartMs", 7, 7000],
] as const;

describe("a manager's settings", () => {
  for (const [name, field, file, ofFile] of all) {
    test(`${name} with an invalid value on the server is logged, and the file's used`, async () => {
      for (const value of ["0", "-1", "often", "9999999999999 years"]) {
        await withDatabase({ [name]: value }, async () => {
          const { settings, refused } = await read({ parameters: { [name]: file } });
          assert.equal(settings[field], ofFile);
          assert.deepEqual(refused, [{ setting: name, value, used: file }]);
        });
      }
    });
  }

  test("of the session override all of the server's", async () => {
    const entry = makeEntry(database.target);
    const manager = await connectManager(entry);
    const log = createLog({ level: "silent", name: "test", write: () => {} });
    await manager.query("SET pg_task.sleep = '44'; SET pg_task.\"limit\" = '55'");
    const { sleepMs, limit } = await readSettings(manager, entry, log);
    await manager.query("RESET pg_task.sleep");
    const again = await readSettings(manager, entry, log);
    await manager.end();
    assert.deepEqual([sleepMs, limit, again.sleepMs], [44, 55, 1000]);
  });

  test("of the entry override all others", async () => {
    const made = { "pg_task.sleep": "11", "pg_task.reset": "11 sec", "pg_task.run": "11" };
    await withDatabase(made, async () => {
      const fixed = { sleep: 22, reset: "22 sec", run: 22 };
      const { settings } = await read({ fixed });
      assert.deepEqual([settings.sleepMs, settings.resetMs, settings.run], [fixed.sleep, 22_000, fixed.run]);
    });
  });

  test("of the entry override invalid ones, which are not logged then", async () => {
    const made = { "pg_task.sleep": "x", "pg_task.reset": "x", "pg_task.run": "x" };
    await withDatabase(made, async () => {
      const { refused } = await read({ fixed: { sleep: 1, reset: "1 sec", run: 1 } });
      assert.deepEqual(refused, []);
    });
  });

  test("pg_work.idle is an alias of pg_task.idle, which takes precedence", async () => {
    await withDatabase({ "pg_work.idle": "5" }, async () => {
      assert.equal((await read()).settings.idle, 5);
    });
    await withDatabase({ "pg_work.idle": "5", "pg_task.idle": "6" }, async () => {
      assert.equal((await read()).settings.idle, 6);
    });
    await withDatabase({ "pg_work.idle": "x" }, async () => {
      const { settings, refused } = await read();
      assert.equal(settings.idle, 60);
      assert.deepEqual(refused, [{ setting: "pg_work.idle", value: "x", used: 60 }]);
    });
  });

  for (const [text, ms] of [
    ["90 min", 5_400_000],
    ["1:30", 5_400_000],
    ["PT1H30M", 5_400_000],
    ["@ 1 hour 30 mins", 5_400_000],
    ["0 1:30:00", 5_400_000],
    ["1 day 02:00:00", 93_600_000],
    ["0.5", 500],
    ["1 mon", 2_592_000_000],
  ] as const) {
    test(`pg_task.reset accepts ${text} with any IntervalStyle of the database`, async () => {
      for (const style of ["postgres", "postgres_verbose", "sql_standard", "iso_8601"]) {
        await withDatabase({ "pg_task.reset": text, IntervalStyle: style }, async () => {
          assert.equal((await read()).settings.resetMs, ms);
          assert.equal((await read({ fixed: { reset: text } })).settings.resetMs, ms);
        });
        await withDatabase({ IntervalStyle: style }, async () => {
          const { settings } = await read({ parameters: { "pg_task.reset": text } });
          assert.equal(settings.resetMs, ms);
        });
      }
    });
  }

  for (const [text, bytes] of [
    ["1", 1],
    ["1.5 kB", 1536],
    ["64MB", 67_108_864],
    ["2147483647", 2_147_483_647],
  ] as const) {
    test(`pg_task.output accepts ${text}`, async () => {
      await withDatabase({ "pg_task.output": text }, async () => {
        assert.equal((await read()).settings.outputLimit, bytes);
      });
    });
  }
});

test("settings of a role or database do not affect the manager's statements", async () => {
  const spoiling = {
    statement_timeout: "1",
    lock_timeout: "1",
    default_transaction_read_only: "on",
    default_transaction_isolation: "serializable",
    search_path: "nowhere",
    DateStyle: "SQL, DMY",
    IntervalStyle: "iso_8601",
    "pgtask.manager": "off",
    standard_conforming_strings: "off",
    quote_all_identifiers: "on",
  };
  await withDatabase(spoiling, async () => {
    const manager = await connectManager(makeEntry(database.target));
    const { rows } = await manager.query<{ name: string; value: string }>(
      "SELECT n AS name, current_setting(n) AS value FROM unnest($1::text[]) AS n",
      [Object.keys(spoiling)],
    );
    await manager.end();
    const seen = Object.fromEntries(rows.map(({ name, value }) => [name, value]));
    assert.match(seen["DateStyle"] ?? "", /^ISO,/);
    assert.deepEqual(seen, {
      DateStyle: seen["DateStyle"],
      statement_timeout: "0",
      lock_timeout: "1s",
      default_transaction_read_only: "off",
      default_transaction_isolation: "read committed",
      search_path: "pg_catalog, pg_temp",
      IntervalStyle: "postgres",
      "pgtask.manager": "on",
      standard_conforming_strings: "on",
      quote_all_identifiers: "off",
    });
  });
});
