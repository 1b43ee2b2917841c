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

async function add({ first, last, input, group, key }: Addition): Promise<void> {
  await pool.query(
    `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
       SELECT json_populate_record(NULL::graphile_worker.job_spec, json_build_object(
         'identifier', 'run', 'queue_name', ${group ?? "NULL"}, 'job_key', ${key ?? "NULL"},
         'payload', json_build_object('n', n, 'sql', ${input})
       )) FROM generate_series(${first}::integer, ${last}) AS n
     ))`,
  );
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
    run: async (payload: Payload) => {
      await handle(payload);
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
