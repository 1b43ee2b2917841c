import type { Client } from "pg";
import { one, type Database } from "../database.js";
import { startPgTask } from "../pgTaskProcess.js";
import { coreMsOfThread } from "../processUsage.js";
import { median } from "../statistics.js";
import { bestConfiguration } from "../subjects/pgTask.js";
import type { Bench, Measure } from "./measure.js";

interface Sample {
  readonly round: number;
  readonly trigger: string;
  readonly statement: string;
  /** CPU time of the server's process for each inserted row, in µs. */
  readonly us: number;
}

export interface Triggers {
  readonly samples: readonly Sample[];
}

const inserted = 1000;

/** SQL of hand-written trigger functions, which insert the same tasks as task_async, or tasks without args. */
const setup = `
CREATE FUNCTION by_hand_without_args() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO task (input, "group") VALUES ('SELECT 1', 'billing');
  RETURN NULL;
END $$;
CREATE FUNCTION by_hand() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO task (input, args, "group") VALUES ('SELECT 1', jsonb_build_object('new', to_jsonb(NEW)), 'billing');
  RETURN NULL;
END $$;
CREATE FUNCTION by_hand_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO task (input, args, "group")
  SELECT 'SELECT 1', jsonb_build_object('new', jsonb_agg(to_jsonb(c))), 'billing' FROM changed AS c HAVING count(*) > 0;
  RETURN NULL;
END $$;`;

const eachRow = "AFTER INSERT ON TABLE FOR EACH ROW EXECUTE FUNCTION";
const eachStatement = "AFTER INSERT ON TABLE REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION";

/** The triggers that are compared, each on a table of its own. Null is a table without a trigger. */
const triggers: Readonly<Record<string, string | null>> = {
  none: null,
  "written by hand, for each row, without `args`": `${eachRow} by_hand_without_args()`,
  "written by hand, for each row": `${eachRow} by_hand()`,
  "`task_async`, for each row": `${eachRow} task_async('SELECT 1', 'group', 'billing')`,
  "`task_async`, for each row, with other columns": `${eachRow} task_async('SELECT 1', 'group', 'billing', 'data', '=$1->>''op''')`,
  "written by hand, for each statement": `${eachStatement} by_hand_all()`,
  "`task_async`, for each statement": `${eachStatement} task_async('SELECT 1', 'group', 'billing')`,
};

/** The statements that insert rows, as a function of the table's name. */
const statements: Readonly<Record<string, (table: string) => string>> = {
  "one row": (table) => `DO $$ BEGIN FOR n IN 1 .. ${inserted} LOOP
    INSERT INTO ${table} (account, amount, note) VALUES (n, 12.5, 'a payment of some sort'); END LOOP; END $$`,
  "1,000 rows": (table) =>
    `INSERT INTO ${table} (account, amount, note) SELECT n, 12.5, 'a payment of some sort' FROM generate_series(1, ${inserted}) AS n`,
};

async function run({ databases, node, options, say }: Bench): Promise<Triggers> {
  const database: Database = await databases.make();
  try {
    const program = await startPgTask({ node, url: database.url, configuration: bestConfiguration });
    await program.stop();
    return { samples: await measureAll(database.client, options.rounds, say) };
  } finally {
    await database.drop();
  }
}

async function measureAll(client: Client, rounds: number, say: Bench["say"]): Promise<Sample[]> {
  const { pid } = await one<{ pid: number }>(client, "SELECT pg_backend_pid() AS pid");
  await client.query(setup);
  for (const [index, trigger] of Object.values(triggers).entries()) {
    await client.query(
      `CREATE TABLE pay_${index} (id bigserial PRIMARY KEY, account integer, amount numeric, note text)`,
    );
    if (trigger !== null) await client.query(`CREATE TRIGGER t ${trigger.replace("TABLE", `pay_${index}`)}`);
  }
  const samples: Sample[] = [];
  // Round 0 loads catalogs and plans, and does not count.
  for (let round = 0; round <= rounds; round += 1) {
    for (const [statement, sql] of Object.entries(statements)) {
      for (const [index, trigger] of Object.keys(triggers).entries()) {
        const before = await coreMsOfThread(pid);
        await client.query(sql(`pay_${index}`));
        const us = (((await coreMsOfThread(pid)) - before) * 1000) / inserted;
        if (round > 0) samples.push({ round, trigger, statement, us });
        await client.query(`TRUNCATE task, pay_${index}`);
      }
    }
    say(`round ${round} of ${rounds}`);
  }
  return samples;
}

const typical = ({ samples }: Triggers, trigger: string, statement: string): number =>
  median(samples.filter((sample) => sample.trigger === trigger && sample.statement === statement).map(({ us }) => us));

export const asyncTriggers: Measure<Triggers> = {
  name: "triggers",
  optional: true,
  concerns: ({ name }) => name === "pg-task",
  run,
  report: (raw) => ({
    title: "Asynchronous triggers",
    head: ["trigger", ...Object.keys(statements).map((statement) => `\`INSERT\` of ${statement}`)],
    rows: Object.keys(triggers).map((trigger) => [
      trigger,
      ...Object.keys(statements).map((statement) => `${typical(raw, trigger, statement).toFixed(1)} µs`),
    ]),
    note: "CPU time of the server's process for each inserted row, without the commit. The triggers written by hand plan the same tasks with static SQL. A trigger for each row plans a task for each row; one for each statement plans one task for all rows of the statement. Each figure is the median of the rounds, in which the tables take turns. No manager is running.",
  }),
};
