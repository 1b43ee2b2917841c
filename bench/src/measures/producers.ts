import { setTimeout as pause } from "node:timers/promises";
import type { Client } from "pg";
import { one, type Database } from "../database.js";
import { startPgTask } from "../pgTaskProcess.js";
import { median } from "../statistics.js";
import { pgbench } from "../subjects/pgbench.js";
import { addTasks, bestConfiguration } from "../subjects/pgTask.js";
import { works } from "../work.js";
import type { Bench, Measure } from "./measure.js";

interface Pair {
  readonly situation: string;
  readonly round: number;
  /**
   * Inserted rows per second, with the trigger and without it. If `instead` is set, `with` is the rate of the script
   * `instead`, and `without` is the rate of `script`.
   */
  readonly with: number;
  readonly without: number;
}

export interface Producers {
  readonly pairs: readonly Pair[];
}

interface Situation {
  readonly name: string;
  readonly title: string;
  readonly manager: "none" | "idle" | "busy";
  readonly script: string;
  /**
   * If set, this script is compared with `script`. If not set, `script` with the trigger is compared with `script`
   * without it.
   */
  readonly instead?: string;
}

const clients = 32;
const now = "INSERT INTO task (input, max) VALUES ('SELECT 1', 1000000);\n";
const notifying = "INSERT INTO task (input, max) SELECT 'SELECT 1', 1000000 FROM pg_notify('bench', '');\n";
const later = "INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '1 day');\n";

const situations: readonly Situation[] = [
  {
    name: "notify",
    title: "a NOTIFY of their own in the same transaction, no manager",
    manager: "none",
    script: now,
    instead: notifying,
  },
  { name: "none", title: "trigger, no manager", manager: "none", script: now },
  {
    name: "idle",
    title: "trigger, manager idle (tasks for later)",
    manager: "idle",
    script: later,
  },
  { name: "busy", title: "trigger, manager busy", manager: "busy", script: now },
];

async function run(bench: Bench): Promise<Producers> {
  const pairs: Pair[] = [];
  for (let round = 1; round <= bench.options.rounds; round += 1) {
    for (const situation of situations) {
      const database = await bench.databases.make();
      try {
        const pair = await runPair(bench, database, situation, round);
        pairs.push({ situation: situation.name, round, ...pair });
        bench.say(
          `round ${round}, ${situation.name}: ${(pair.with / pair.without).toFixed(2)} of ${Math.round(pair.without)}/s`,
        );
      } finally {
        await database.drop();
      }
    }
  }
  return { pairs };
}

async function runPair(
  { node, options }: Bench,
  { client, url }: Database,
  { manager, script, instead }: Situation,
  round: number,
): Promise<Pick<Pair, "with" | "without">> {
  const program = await startPgTask({ node, url, configuration: bestConfiguration });
  if (manager === "none") await program.stop();
  if (manager === "busy") await addBacklog(client, options.rows);
  const insert = async (asked: boolean): Promise<number> => {
    await setTrigger(client, asked && instead === undefined);
    return await pgbench(url, {
      script: asked ? (instead ?? script) : script,
      clients,
      mode: "simple",
      amount: { seconds: options.seconds },
    });
  };
  try {
    const rates = new Map<boolean, number>();
    // The order alternates from round to round, because the second run finds a larger table.
    for (const asked of round % 2 === 0 ? [true, false] : [false, true]) {
      rates.set(asked, await insert(asked));
    }
    if (manager === "busy") await requireBacklog(client);
    return { with: rates.get(true) ?? 0, without: rates.get(false) ?? 0 };
  } finally {
    if (manager !== "none") await program.stop();
  }
}

async function addBacklog(client: Client, rows: number): Promise<void> {
  const [select] = works;
  if (select !== undefined) await addTasks(client, select, 1, Math.ceil(rows / 5));
  await pause(1000);
}

async function requireBacklog(client: Client): Promise<void> {
  const { waiting } = await one<{ waiting: boolean }>(
    client,
    "SELECT EXISTS (SELECT FROM task WHERE state = 'PLAN') AS waiting",
  );
  if (!waiting) throw new Error("the manager was not busy to the end: give it more --rows");
}

/** Enables or disables the table's AFTER triggers. One of them notifies the manager. */
async function setTrigger(client: Client, on: boolean): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT quote_ident(tgname) AS name FROM pg_trigger
     WHERE tgrelid = 'task'::regclass AND NOT tgisinternal AND tgtype & 2 = 0`,
  );
  for (const { name } of rows) {
    await client.query(`ALTER TABLE task ${on ? "ENABLE" : "DISABLE"} TRIGGER ${name}`);
  }
}

export const producers: Measure<Producers> = {
  name: "producers",
  concerns: ({ needs, name }) => needs === "pgbench" || name === "pg-task",
  run,
  report: ({ pairs }) => ({
    title: `${clients} producers inserting single rows`,
    head: ["", "rate, relative to the rate without"],
    rows: situations.map(({ name, title }) => {
      const ratios = pairs.filter(({ situation }) => situation === name).map((pair) => pair.with / pair.without);
      return [title, median(ratios).toFixed(2)];
    }),
    note: "Each ratio compares two runs of pgbench with the manager in the same situation: one with the trigger (or the NOTIFY), one without. In both runs, the manager shares the cores with the producers.",
  }),
};
