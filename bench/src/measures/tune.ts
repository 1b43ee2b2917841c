import { peerSubject } from "../subjects/peer.js";
import { bossBest, graphileBest, graphileBestSetting } from "../subjects/peers.js";
import { bestConfiguration, pgTask } from "../subjects/pgTask.js";
import type { Subject } from "../subjects/subject.js";
import { works } from "../work.js";
import type { Measure } from "./measure.js";
import { medianOf, runVariants, type Variants } from "./variants.js";

const own = [4, 6, 8, 12, 16, 32, 64].map((sessions) =>
  pgTask(`pg-task ${sessions}`, `pg-task, ${sessions} sessions`, {
    ...bestConfiguration,
    "pg_conf.max": sessions,
  }),
);
const graphile = [4, 8, 16, 24, 32].map((jobs) =>
  peerSubject(`graphile-worker ${jobs}`, `graphile-worker, ${jobs} jobs at once`, {
    ...graphileBest,
    pool: jobs,
    setting: () => ({ ...graphileBestSetting, concurrentJobs: jobs, maxPoolSize: jobs + 1 }),
  }),
);
const boss = [100, 500, 1000, 2500, 5000].map((batchSize) =>
  peerSubject(`pg-boss ${batchSize}`, `pg-boss, batches of ${batchSize}`, {
    ...bossBest,
    setting: (work) => ({ ...bossBest.setting(work), batchSize }),
  }),
);
const subjects: readonly Subject[] = [...own, ...graphile, ...boss];
const kinds = works.filter(({ name }) => ["select", "insert"].includes(name));

/** Compares settings. The best ones are used in `subjects/all.ts`. */
export const tune: Measure<Variants> = {
  name: "tune",
  optional: true,
  concerns: ({ name }) => ["pg-task", "graphile-worker-best", "pg-boss-best"].includes(name),
  run: async (bench) => {
    const asked = subjects.filter(({ name }) =>
      bench.subjects.some((subject) => name.split(" ")[0] === subject.name.replace("-best", "")),
    );
    return await runVariants(
      bench,
      kinds.map((work) => ({ work, subjects: asked })),
    );
  },
  report: (raw) => ({
    title: "Comparison of settings",
    head: ["", ...kinds.map(({ title }) => `${title}, tasks/s`)],
    rows: subjects
      .filter(({ name }) => raw.runs.some(({ subject }) => subject === name))
      .map(({ name, title }) => [title, ...kinds.map((work) => medianOf(raw, work.name, name).toFixed(0))]),
    note: "Medians.",
  }),
};
