import { medianOf } from "./variants.js";
import { bestConfiguration, pgTask } from "../subjects/pgTask.js";
import type { Work } from "../work.js";
import type { Measure } from "./measure.js";
import { runVariants, type Variants } from "./variants.js";

const counts = [1, 2, 4] as const;

const plain = { groups: 1, serial: false, writes: false } as const;
const large: Work = {
  ...plain,
  name: "large",
  title: "outputs of 10 MB",
  input: "'SELECT repeat(''x'', 99) FROM generate_series(1, 100000)'",
  share: 0.001,
};
const crowd: Work = {
  ...plain,
  name: "crowd",
  title: "200 sessions, `SELECT 1`",
  input: "'SELECT 1'",
  share: 1,
};
const few: Work = { ...crowd, name: "few", title: "sessions of the best setting, `SELECT 1`" };

const variants = [large, crowd, few].map((work) => ({
  work,
  subjects: counts.map((threads) =>
    pgTask(String(threads), `${threads} threads`, {
      ...bestConfiguration,
      ...(work === crowd ? { "pg_conf.max": 200 } : {}),
      "pg_conf.threads": threads,
    }),
  ),
}));

export const threads: Measure<Variants> = {
  name: "threads",
  concerns: ({ name }) => name === "pg-task",
  run: async (bench) => await runVariants(bench, variants),
  report: (raw) => ({
    title: "Executor threads",
    head: ["", ...counts.map((count) => (count === 1 ? "1 thread" : `${count} threads`))],
    rows: variants.map(({ work }) => [
      work.title,
      ...counts.map((count) => (medianOf(raw, work.name, String(count)) / medianOf(raw, work.name, "1")).toFixed(2)),
    ]),
    note: "Tasks per second, relative to one thread.",
  }),
};
