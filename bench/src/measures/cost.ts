import { CoreMeter, type Spent } from "../coreMeter.js";
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
}

export interface Cost {
  readonly runs: readonly Run[];
}

const concerned = ["pg-task", "pg-task-retry", "pg-task-unwrapped", "graphile-worker-best"];
const kinds = works.filter(({ name }) => ["select", "insert"].includes(name));

function us(those: readonly Run[], of: (spent: Spent) => number): string {
  return median(those.map(({ spent, tasks }) => (of(spent) * 1000) / tasks)).toFixed(1);
}

export const cost: Measure<Cost> = {
  name: "cost",
  concerns: ({ name }) => concerned.includes(name),
  run: async (bench) => {
    const runs: Run[] = [];
    for (const work of kinds) {
      for (let round = 1; round <= bench.options.rounds; round += 1) {
        for (const subject of bench.subjects) {
          const meter = new CoreMeter();
          const timing = await runOnce(bench, subject, work, meter);
          const { spent } = meter;
          runs.push({ work: work.name, subject: subject.name, round, ...timing, spent });
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
      ],
      note: "CPU time as the operating system counts it, from the commit of the tasks until the last one is seen as done. Time spent waiting for the disk or for a core is not included. “pg-task-retry” is pg-task with `pg_task.retry` 3, and “pg-task-unwrapped” with `atomic` off.",
    };
  },
};
