import assert from "node:assert/strict";
import { after } from "node:test";
import { connectManager } from "../../src/manager/loop/connectManager.js";
import { locateTable } from "../../src/manager/schema/locateTable.js";
import { readSettings, type ManagerSettings } from "../../src/manager/model/settings.js";
import { parameters, type ParameterName } from "../../src/shared/config/parameterTable.js";
import type { ConnectionTarget } from "../../src/shared/postgres/target/target.js";
import type { Entry } from "../../src/shared/config/types.js";
import { identifier, literal } from "../../src/shared/postgres/quoting.js";
import { readControlSettings } from "../../src/supervisor/controlSettings.js";
import { test } from "../support/limitedTest.js";
import { RestartableServer } from "../support/restartableServer.js";
import { ensureTaskTable, makeEntry, silentLog } from "../support/taskTables.js";
import { connectTo, withConnectionTo } from "../support/connectTo.js";
import { insertTask, valueOf } from "../support/tasks.js";

const server = await RestartableServer.started();
const target: ConnectionTarget = {
  host: "127.0.0.1",
  port: server.port,
  user: "postgres",
  database: "postgres",
  sslmode: "disable",
  connectTimeoutMs: 10_000,
};
const role = { ...target, user: "worker" };
const admin = await connectTo(target);
after(() => admin.end());
await admin.query("CREATE ROLE worker LOGIN; GRANT CREATE ON SCHEMA public TO worker");

/** Values for the file, postgresql.conf, the database, the role, and the role in the database. */
type Values = readonly [string | number | boolean, string, string, string, string];

const numbers: Values = [101, "102", "103", "104", "105"];
const characters: Values = ["a", "b", "c", "d", "e"];
const zones: Values = ["Europe/Berlin", "Asia/Tokyo", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"];

const valuesOfType: Partial<Record<(typeof parameters)[number]["type"], Values>> = {
  bool: [true, "false", "true", "false", "true"],
  int: numbers,
  size: numbers,
  interval: ["00:00:01", "00:00:02", "00:00:03", "00:00:04", "00:00:05"],
  char: characters,
  text: characters,
  name: characters,
  sqlstates: ["40", "40,55P03", "!42", "22", "!0A"],
};

const valuesOf = ({ name, type }: (typeof parameters)[number]): Values | undefined =>
  name === "pg_task.zone" ? zones : valuesOfType[type];

/** For parameters of a manager: the field of its settings, and the field's value per unit of the parameter. */
const managers: Partial<Record<ParameterName, readonly [Exclude<keyof ManagerSettings, "sqlstates">, number]>> = {
  "pg_task.sleep": ["sleepMs", 1],
  "pg_task.reset": ["resetMs", 1000],
  "pg_task.idle": ["idle", 1],
  "pg_task.limit": ["limit", 1],
  "pg_task.fetch": ["fetch", 1],
  "pg_task.run": ["run", 1],
  "pg_task.output": ["outputLimit", 1],
  "pg_task.crash": ["crash", 1],
  "pg_task.ceiling": ["ceilingMs", 1000],
  "pg_task.slow": ["slowMs", 1000],
  "pg_work.close": ["closeMs", 1],
  "pg_work.fetch": ["batch", 1],
  "pg_work.restart": ["restartMs", 1000],
};

const refuse = (): never => assert.fail("a setting was refused");

/** Returns the value that is in effect in a new session of the role, as text. */
async function effective(name: ParameterName, file: string | number | boolean): Promise<string> {
  const entry = makeEntry(role, { parameters: { [name]: file } });
  const short = name.replace(/^pg_\w+\./, "");
  if (name === "pg_task.schema" || name === "pg_task.table") {
    const location = await withConnectionTo(role, (client) => locateTable(client, entry, refuse));
    return name === "pg_task.schema" ? location.schema : location.table;
  }
  if (name.startsWith("pg_conf.")) {
    const made = await withConnectionTo(role, (client) => readControlSettings(client, entry.parameters, refuse));
    return String(new Map(Object.entries(made)).get(name) ?? file);
  }
  if (name === "pg_task.sqlstate") return (await settingsOf(entry)).sqlstates.join();
  const setting = managers[name];
  if (setting !== undefined) {
    const [field, factor] = setting;
    const value = (await settingsOf(entry))[field] / factor;
    return ["pg_task.reset", "pg_task.ceiling", "pg_task.slow"].includes(name) ? `00:00:0${value}` : String(value);
  }
  await ensureTaskTable(role, { parameters: { [name]: file } });
  const schedule = name === "pg_task.zone" ? { rule: "0 0 1 1 *", repeat: "0" } : {};
  return await withConnectionTo(role, async (client) => {
    const id = await insertTask(client, "", schedule);
    return await valueOf(client, `SELECT ${identifier(short)}::text FROM task WHERE id = $1`, [id]);
  });
}

/** Returns the settings of a manager of the entry. */
async function settingsOf(entry: Entry): Promise<ManagerSettings> {
  const manager = await connectManager(entry);
  try {
    return await readSettings(manager, entry, silentLog);
  } finally {
    await manager.end();
  }
}

const quoted = (name: string): string => name.split(".").map(identifier).join(".");

/**
 * Sets a parameter by ALTER SYSTEM. Older servers accept only a custom setting that the session itself has set before.
 */
async function alterSystem(name: string, value: string): Promise<void> {
  await admin.query(`SET ${quoted(name)} = ${literal(value)}`);
  await admin.query(`ALTER SYSTEM SET ${quoted(name)} = ${literal(value)}`);
}

const withServer = parameters.filter(({ levels }) => levels.includes("database"));
for (const parameter of withServer) {
  await alterSystem(parameter.name, String(valuesOf(parameter)?.[1]));
}
// Until the server reloads its configuration, the values of pg-task's file are in effect.
const ofFile = new Map<string, string>();
for (const parameter of withServer) {
  ofFile.set(parameter.name, await effective(parameter.name, valuesOf(parameter)?.[0] ?? ""));
}
await admin.query("SELECT pg_reload_conf()");
while ((await effective("pg_task.sleep", 101)) !== "102") continue;

for (const parameter of withServer) {
  const { name } = parameter;
  const values = valuesOf(parameter);
  assert.ok(values !== undefined, `${name} has no values`);
  const [file, ofServer, ofDatabase, ofRole, ofBoth] = values;
  test(`§2 ${name} is read from the role in the database, then the role, the database, postgresql.conf, the file`, async () => {
    assert.equal(ofFile.get(name), String(file));
    assert.equal(await effective(name, file), ofServer);
    for (const [whose, value] of [
      ["DATABASE postgres", ofDatabase],
      ["ROLE worker", ofRole],
      ["ROLE worker IN DATABASE postgres", ofBoth],
    ] as const) {
      await admin.query(`ALTER ${whose} SET ${quoted(name)} = ${literal(value)}`);
      assert.equal(await effective(name, file), value, whose);
    }
    // An empty value is treated as not set.
    await admin.query(`ALTER ROLE worker IN DATABASE postgres SET ${quoted(name)} = ''`);
    assert.equal(await effective(name, file), String(file));
    for (const whose of ["ROLE worker IN DATABASE postgres", "ROLE worker", "DATABASE postgres"]) {
      await admin.query(`ALTER ${whose} RESET ALL`);
    }
    assert.equal(await effective(name, file), ofServer);
  });
}
