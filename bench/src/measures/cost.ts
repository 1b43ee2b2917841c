import { CoreMeter, type Spent } from "../coreMeter.js";
import { WalMeter } from "../walMeter.js";
import { median } from "../statistics.js";
import { works } from "../work.js";
import type { Measure } from "./measure.js";
import { runOnce } from "./runOnce.js";

interface Run {
  readonly work: string;
  readonly subject: string;
  readonly round: number;
  readonly tasks: number;
  readonly ms: number;
  readonly spent: Spent;
  /** Write-ahead log that the server wrote meanwhile. */
  readonly walBytes: number;
}

export interface Cost {
  readonly runs: readonly Run[];
}

const concerned = ["pg-task", "pg-task-retry", "pg-task-unwrapped", "graphile-worker-best"];
const kinds = works.filter(({ name }) => ["select", "insert"].includes(name));

function perTask(those: readonly Run[], of: (run: Run) => number): number {
  return median(those.map((run) => of(run) / run.tasks));
}

function us(those: readonly Run[], of: (spent: Spent) => number): string {
  return perTask(those, ({ spent }) => of(spent) * 1000).toFixed(1);
}

export const cost: Measure<Cost> = {
  name: "cost",
  concerns: ({ name }) => concerned.includes(name),
  run: async (bench) => {
    const runs: Run[] = [];
    for (const work of kinds) {
      for (let round = 1; round <= bench.options.rounds; round += 1) {
        for (const subject of bench.subjects) {
          const cores = new CoreMeter();
          const wal = new WalMeter();
          const timing = await runOnce(bench, subject, work, {
            begin: async (pid, database) => {
              await wal.begin(database);
              await cores.begin(pid, database);
            },
            end: async () => {
              await cores.end();
              await wal.end();
            },
          });
          const [{ spent }, { bytes: walBytes }] = [cores, wal];
          runs.push({ work: work.name, subject: subject.name, round, ...timing, spent, walBytes });
          bench.say(`${work.name}, round ${round}, ${subject.name}`);
        }
      }
    }
    return { runs };
  },
  report: ({ runs }) => {
    const columns = kinds.flatMap((work) =>
      concerned.flatMap((subject) => {
        const those = runs.filter((run) => run.work === work.name && run.subject === subject);
        return those.length === 0 ? [] : [{ title: `${subject}, ${work.name}`, those }];
      }),
    );
    const parts = new Set(runs.flatMap(({ spent }) => Object.keys(spent)).toSorted());
    return {
      title: "Where a task's time goes",
      head: ["µs on a core per task", ...columns.map(({ title }) => title)],
      rows: [
        ...[...parts].map((part) => [part, ...columns.map(({ those }) => us(those, (spent) => spent[part] ?? 0))]),
        [
          "together",
          ...columns.map(({ those }) =>
            us(those, (spent) => Object.values(spent).reduce((sum, each) => sum + each, 0)),
          ),
        ],
        ["bytes of WAL", ...columns.map(({ those }) => perTask(those, ({ walBytes }) => walBytes).toFixed(0))],
      ],
      note: "CPU time as the operating system counts it, from the commit of the tasks until the last one is seen as done. Time spent waiting for the disk or for a core is not included. The last row is what the server writes to its write-ahead log meanwhile, without the tasks’ insertion. “pg-task-retry” is pg-task with `pg_task.retry` 3, and “pg-task-unwrapped” with `atomic` off.",
    };
  },
};
