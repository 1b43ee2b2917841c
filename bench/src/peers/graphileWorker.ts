import { escapeLiteral } from "pg";
import { handling, tell } from "./handling.js";
import type { Addition, Payload } from "./protocol.js";

/**
 * The part of graphile-worker's types that is used here. The original types cannot be imported, because graphile-worker
 * is installed only when it is measured.
 */
interface GraphileWorker {
  readonly run: (options: object) => Promise<{ stop(): Promise<void> }>;
  readonly Logger: new (factory: () => () => void) => object;
}

const name = "graphile-worker";
const { run, Logger }: GraphileWorker = await import(name);
const { given, pool, handle } = handling({ wake: () => {}, add });

type Fields = Readonly<Record<string, string>>;

/** Returns SQL that builds a JSON object. The values are SQL expressions. */
function object(fields: Fields): string {
  return `json_build_object(${Object.entries(fields)
    .map(([field, value]) => `'${field}', ${value}`)
    .join(", ")})`;
}

/** Returns SQL that adds a job for each `n` of a series. The values of `spec` are SQL expressions. */
function addJobs(spec: Fields, series: string): string {
  return `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
    SELECT json_populate_record(NULL::graphile_worker.job_spec, ${object({ identifier: "'run'", ...spec })})
    FROM ${series}))`;
}

async function add({ first, last, input, group, key, tries, shape }: Addition): Promise<void> {
  const spec = {
    ...(group === null ? {} : { queue_name: group }),
    ...(key === null ? {} : { job_key: key }),
    ...(tries === null ? {} : { max_attempts: String(tries) }),
  };
  const payload = { n: "n", sql: input, ...(tries === null ? {} : { tries: String(tries) }) };
  const every = (step: number): string => `generate_series(${first}::integer, ${last}, ${step}) AS n`;
  const jobs = (next: Fields | null, series: string): string =>
    addJobs({ ...spec, payload: object({ ...payload, ...(next === null ? {} : { next: object(next) }) }) }, series);
  if (shape === null) {
    await pool.query(jobs(null, every(1)));
    return;
  }
  switch (shape.kind) {
    case "chain":
      await pool.query(jobs({ kind: "'chain'", left: String(shape.size - 1) }, every(shape.size)));
      break;
    case "fan-out":
      await pool.query(jobs({ kind: "'fan-out'", jobs: String(shape.size - 1) }, every(shape.size)));
      break;
    case "fan-in": {
      const { size } = shape;
      const members = `${every(1)} WHERE n % ${size} <> 0`;
      const lastOfSet = `((n - 1) / ${size} + 1) * ${size}`;
      await pool.query(
        `CREATE TABLE IF NOT EXISTS fan (last integer PRIMARY KEY);
         CREATE TABLE IF NOT EXISTS member (last integer, n integer, PRIMARY KEY (last, n));
         INSERT INTO fan SELECT n FROM ${every(1)} WHERE n % ${size} = 0;
         INSERT INTO member SELECT ${lastOfSet}, n FROM ${members};
         ${jobs({ kind: "'fan-in'", last: lastOfSet }, members)}`,
      );
      break;
    }
    default:
      throw new Error(`unknown shape ${JSON.stringify(shape.kind satisfies never)}`);
  }
}

/**
 * Returns SQL that adds the jobs that follow the job `n`, for the same transaction as its statement. Therefore none of
 * them can start too early, and this need not be checked.
 */
function following({ n, sql, next }: Payload): string {
  if (next === undefined) return "";
  switch (next.kind) {
    case "chain": {
      const { left } = next;
      const payload: Payload = {
        n: n + 1,
        sql,
        ...(left > 1 ? { next: { kind: "chain", left: left - 1 } } : {}),
      };
      return `; SELECT graphile_worker.add_job('run', ${escapeLiteral(JSON.stringify(payload))})`;
    }
    case "fan-out": {
      const payload = { n: "n", sql: escapeLiteral(sql) };
      return `; ${addJobs({ payload: object(payload) }, `generate_series(${n + 1}, ${n + next.jobs}) AS n`)}`;
    }
    case "fan-in":
      return `; DELETE FROM member WHERE last = ${next.last} AND n = ${n}`;
    default:
      throw new Error(`unknown jobs to follow ${JSON.stringify(next satisfies never)}`);
  }
}

/**
 * Adds the last job of a fan-in if no other member is left. This is done after the transaction that deletes a member,
 * so that the members do not wait for each other, as they would to count down in one row. Of two that find none left,
 * only one deletes the row of the fan.
 */
async function closeFan(last: number, sql: string): Promise<void> {
  await pool.query({
    name: "close",
    text: `WITH closed AS (
        DELETE FROM fan WHERE last = $1 AND NOT EXISTS (SELECT FROM member WHERE last = $1) RETURNING last
      )
      SELECT graphile_worker.add_job('run', json_build_object(
        'n', last, 'sql', $2::text
      )) FROM closed`,
    values: [last, sql],
  });
}

const runner = await run({
  preset: {
    worker: {
      connectionString: given.url,
      ...given.setting,
      logger: new Logger(() => () => {}),
    },
  },
  noHandleSignals: true,
  taskList: {
    run: async (payload: Payload, { job }: { readonly job: { readonly attempts: number } }) => {
      await handle(payload, { attempt: job.attempts, also: following(payload) });
      if (payload.next?.kind === "fan-in") await closeFan(payload.next.last, payload.sql);
    },
  },
});
process.once("SIGTERM", () => {
  void (async () => {
    await runner.stop();
    await pool.end();
    process.exit(0);
  })();
});
tell({ type: "ready" });
