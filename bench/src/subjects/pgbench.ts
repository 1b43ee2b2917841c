import { execFile } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { one, type Database } from "../database.js";
import type { Subject } from "./subject.js";

const run = promisify(execFile);
const debian = "/usr/lib/postgresql";

/**
 * Returns the path of pgbench, which is not part of any npm package that the benchmark installs.
 *
 * @throws Error if pgbench is not found
 */
export async function pgbenchProgram(): Promise<string> {
  const versions = await readdir(debian).catch(() => []);
  const folders = [
    ...(process.env["PATH"] ?? "").split(delimiter),
    ...versions.toSorted((a, b) => Number(b) - Number(a)).map((version) => join(debian, version, "bin")),
  ];
  for (const folder of folders) {
    const found = join(folder, "pgbench");
    const works = await run(found, ["--version"]).catch(() => null);
    if (works !== null) return found;
  }
  throw new Error(
    "expected pgbench in PATH or below /usr/lib/postgresql, found none: install it (Debian: postgresql-contrib, or postgresql-client), or choose subjects by --only",
  );
}

export interface PgbenchOptions {
  readonly script: string;
  readonly clients: number;
  readonly mode: "simple" | "prepared";
  /** Transactions per client, or the duration in s. */
  readonly amount: { readonly transactions: number } | { readonly seconds: number };
  /** Transactions per second of all clients together, at random times. Without it, as many as possible. */
  readonly rate?: number;
}

/** @returns transactions per second, excluding the time to connect */
export async function pgbench(url: string, options: PgbenchOptions): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), "pg-task-bench-"));
  try {
    const file = join(folder, "script.sql");
    await writeFile(file, options.script);
    const { amount, rate } = options;
    const { stdout } = await run(await pgbenchProgram(), [
      "--no-vacuum",
      `--file=${file}`,
      `--protocol=${options.mode}`,
      `--client=${options.clients}`,
      "--jobs=2",
      "transactions" in amount ? `--transactions=${amount.transactions}` : `--time=${amount.seconds}`,
      ...(rate === undefined ? [] : [`--rate=${rate}`]),
      url,
    ]);
    const measured = /^tps = ([0-9.]+) \(without/m.exec(stdout)?.[1];
    if (measured === undefined || !/^number of failed transactions: 0 /m.test(stdout)) {
      throw new Error(`expected pgbench to end with a rate and no failure, got ${stdout}`);
    }
    return Number(measured);
  } finally {
    await rm(folder, { recursive: true });
  }
}

const clients = 16;

/** Executes a bare statement without any bookkeeping. The rate is an upper limit for every queue. */
export function pgbenchSelect(name: string, title: string, mode: PgbenchOptions["mode"]): Subject {
  return {
    name,
    title,
    share: 1,
    needs: "pgbench",
    does: (work) => work.name === "select",
    run: async ({ database }, _, tasks) => {
      const transactions = Math.ceil(tasks / clients);
      const rate = await pgbench(database.url, {
        script: "SELECT 1;",
        clients,
        mode,
        amount: { transactions },
      });
      return { tasks: transactions * clients, ms: (transactions * clients * 1000) / rate };
    },
  };
}

const cycle = `UPDATE item SET state = 'WORK', start = now() WHERE id = (
  SELECT id FROM item WHERE state = 'PLAN' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING id \\gset
SELECT 1;
UPDATE item SET state = 'DONE', stop = now(), output = '1' WHERE id = :id;
`;

/** Claim, run, complete: three statements per task, as in a queue without batches. */
export const pgbenchCycle: Subject = {
  name: "pgbench-cycle",
  title: "pgbench, claim–run–done one by one",
  share: 0.5,
  needs: "pgbench",
  does: (work) => work.name === "select",
  run: async ({ database }, _, tasks) => {
    const transactions = Math.ceil(tasks / clients);
    const items = transactions * clients;
    await makeItems(database, items);
    const rate = await pgbench(database.url, {
      script: cycle,
      clients,
      mode: "prepared",
      amount: { transactions },
    });
    const { done } = await one<{ done: number }>(
      database.client,
      "SELECT count(*)::integer AS done FROM item WHERE state = 'DONE'",
    );
    if (done !== items) throw new Error(`expected ${items} items to be done, got ${done}`);
    return { tasks: items, ms: (items * 1000) / rate };
  },
};

async function makeItems({ client }: Database, items: number): Promise<void> {
  await client.query(`
    CREATE TABLE item (id serial PRIMARY KEY, state text NOT NULL DEFAULT 'PLAN', start timestamptz, stop timestamptz, output text) WITH (fillfactor = 60);
    CREATE INDEX ON item (id) WHERE state = 'PLAN';
    INSERT INTO item SELECT FROM generate_series(1, ${items});
    ANALYZE item;
  `);
}
