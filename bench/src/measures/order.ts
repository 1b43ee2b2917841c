import { peerSubject } from "../subjects/peer.js";
import { bossBest, bossShort, bossStately, graphileBest } from "../subjects/peers.js";
import { bestConfiguration, pgTask } from "../subjects/pgTask.js";
import { reference } from "../subjects/all.js";
import type { Subject } from "../subjects/subject.js";
import type { Work } from "../work.js";
import type { Measure } from "./measure.js";
import { comparedWith, medianRate, ratio } from "./ratios.js";
import { runVariants, type Variant, type Variants } from "./variants.js";

const plain: Work = {
  name: "plain",
  title: "plain",
  input: "'SELECT 1'",
  groups: 1,
  serial: false,
  writes: false,
  share: 1,
};
const keyed: Work = { ...plain, name: "keyed", title: "distinct keys", key: "'key ' || n" };

const own = pgTask("pg-task", "pg-task, best setting", bestConfiguration);
const timed = pgTask("pg-task-timeout", "pg-task, best setting, with a `timeout`", {
  ...bestConfiguration,
  "pg_task.timeout": "1 hour",
});
const graphile = peerSubject(reference, "graphile-worker, best setting", graphileBest);
const boss = peerSubject("pg-boss-best", "pg-boss", bossBest);
const short = peerSubject("pg-boss-short", "pg-boss, policy `short`", bossShort);
const stately = peerSubject("pg-boss-stately", "pg-boss, policy `stately`", bossStately);

const variants: readonly Variant[] = [
  { work: plain, subjects: [own, timed, graphile, boss] },
  { work: keyed, subjects: [own, timed, graphile, short, stately] },
];
const subjects: readonly Subject[] = [...new Set(variants.flatMap((variant) => variant.subjects))];

/** Tasks with keys, beside the same tasks without. */
export const order: Measure<Variants> = {
  name: "order",
  concerns: ({ name }) => ["pg-task", reference, "pg-boss-best"].includes(name),
  run: async (bench) => {
    const programs = bench.subjects.map(({ name }) => name.replace("-best", ""));
    const asked = (subject: Subject): boolean => programs.some((program) => subject.name.startsWith(program));
    return await runVariants(
      bench,
      variants
        .filter(({ work }) => bench.options.work.length === 0 || bench.options.work.includes(work.name))
        .map(({ work, subjects: some }) => ({ work, subjects: some.filter(asked) })),
    );
  },
  report: (raw) => {
    const to = comparedWith(raw);
    const works = variants.map(({ work }) => work).filter(({ name }) => raw.runs.some((run) => run.work === name));
    const there = subjects.filter(({ name }) => raw.runs.some((run) => run.subject === name));
    return {
      title: "Keys",
      head: ["", ...works.map(({ title }) => title)],
      rows: [
        ...there.map(({ name, title }) => [
          title,
          ...works.map((work) => ratio(raw, work.name, name, to)?.toFixed(2) ?? "–"),
        ]),
        [
          "1.00 is, in tasks/s",
          ...works.map(({ name }) => Math.round(medianRate(raw, name, to) ?? 0).toLocaleString("en")),
        ],
      ],
      note: "",
    };
  },
};
