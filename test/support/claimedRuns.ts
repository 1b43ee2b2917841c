import type { RunResult } from "../../src/shared/ipc/run.js";
import type { Client } from "../../src/shared/postgres/client.js";
import type { Run } from "../../src/shared/ipc/run.js";
import type { TestDatabase } from "./database.js";
import { ExecutorDriver, type EndedResult } from "./executorDriver.js";

/** The result of a run, and what the run left in the database. */
export interface Outcome extends EndedResult {
  /** Number of rows in the ledgers that belong to this run. */
  readonly proofs: number;
  readonly effects: string[];
}

/** Makes runs of tasks whose rows belong to the session that runs them, as after a claim. */
export class ClaimedRuns {
  readonly driver: ExecutorDriver;
  readonly admin: Client;

  private constructor(driver: ExecutorDriver, admin: Client) {
    this.driver = driver;
    this.admin = admin;
  }

  /** Opens session 1 and creates the table `effect (what text)`. */
  static async create(database: TestDatabase, user?: string, outputLimit = 64 << 20): Promise<ClaimedRuns> {
    const admin = await database.connect();
    await admin.query("CREATE TABLE IF NOT EXISTS effect (what text)");
    const target = user === undefined ? database.target : { ...database.target, user };
    const driver = new ExecutorDriver(target, admin, {
      finishFunction: '"public"."task_finish"',
      outputLimit,
    });
    await driver.open(1);
    return new ClaimedRuns(driver, admin);
  }

  /** Inserts a task and claims it for the session. `$id` in the input is the task's id. */
  async claim(input: string, options: Partial<Run> = {}, session = 1): Promise<Run> {
    const { owner } = this.driver.backend(session);
    const { rows } = await this.admin.query<{ id: string; take: string; input: string }>(
      `WITH i AS (INSERT INTO task (input) VALUES ($1) RETURNING id)
       SELECT id FROM i`,
      [input],
    );
    const id = rows[0]?.id ?? "";
    const claimed = await this.admin.query<{ take: string; input: string }>(
      `UPDATE task SET state = 'WORK', owner = $2, ready = NULL, take = now(), start = now(),
         input = replace(input, '$id', id::text)
       WHERE id = $1 RETURNING input, (extract(epoch FROM take) * 1000000)::bigint::text AS take`,
      [id, owner],
    );
    const row = claimed.rows[0];
    if (row === undefined) throw new Error("the task was not claimed");
    return this.driver.makeRun(session, row.input, {
      id,
      claimedAt: row.take,
      atomic: true,
      ...options,
    });
  }

  async begin(input: string, options: Partial<Run> = {}): Promise<Run> {
    const run = await this.claim(input, options);
    this.driver.executor.dispatch([run]);
    return run;
  }

  async run(input: string, options: Partial<Run> = {}): Promise<Outcome> {
    const run = await this.claim(input, options);
    return await this.dispatch(run);
  }

  async dispatch(run: Run): Promise<Outcome> {
    this.driver.executor.dispatch([run]);
    return await this.outcome(run);
  }

  async outcome(run: Run): Promise<Outcome> {
    const result = await this.driver.result(run.id);
    return {
      ...expectEnded(result),
      proofs: await this.proofs(run),
      effects: await this.effects(),
    };
  }

  async proofs({ id, claimedAt: take }: Run): Promise<number> {
    const { rowCount } = await this.admin.query(
      `SELECT FROM (TABLE task_ledger_1 UNION ALL TABLE task_ledger_2) AS ledger
       WHERE id = $1 AND take = $2`,
      [id, take],
    );
    return rowCount ?? 0;
  }

  async effects(): Promise<string[]> {
    const { rows } = await this.admin.query<{ what: string }>("SELECT what FROM effect ORDER BY 1");
    return rows.map(({ what }) => what);
  }

  /** Returns a column of a task's row as text. Returns null also if the row does not exist. */
  async row({ id }: Run, column: string): Promise<string | null> {
    const { rows } = await this.admin.query<{ value: string }>(
      `SELECT "${column}"::text AS value FROM task WHERE id = $1`,
      [id],
    );
    return rows[0]?.value ?? null;
  }
}

function expectEnded(result: RunResult): EndedResult {
  if (result.outcome !== "ended") throw new Error(`run ${result.id} was released`);
  return result;
}
