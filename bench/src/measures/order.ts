import { peerSubject } from "../subjects/peer.js";
import {
  bossBest,
  bossFlow,
  bossShort,
  bossStately,
  graphileBest,
  graphileDirect,
  graphileRetrying,
} from "../subjects/peers.js";
import { bestConfiguration, pgTask } from "../subjects/pgTask.js";
import { reference } from "../subjects/all.js";
import type { Subject } from "../subjects/subject.js";
import { triesBefore, type Work } from "../work.js";
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
const keyed: Work = { ...plain, name: "keyed", title: "a key each", key: "'key ' || n" };
const failing: Work = { ...plain, name: "failing", title: "all fail", input: `'SELECT 1 / ${triesBefore}'`, tries: 1 };
const retried: Work = { ...failing, name: "retried", title: "fail once, then succeed", tries: 2 };
const chain: Work = { ...plain, name: "chain", title: "chains of 10", shape: { kind: "chain", size: 10 } };
const fanOut: Work = { ...plain, name: "fan-out", title: "1 → 1,000", shape: { kind: "fan-out", size: 1001 } };
const fanIn: Work = { ...plain, name: "fan-in", title: "1,000 → 1", shape: { kind: "fan-in", size: 1001 } };

const own = pgTask("pg-task", "pg-task", bestConfiguration);
/** Tasks with keys need more sessions than the best setting for other tasks has. */
const standard = pgTask("pg-task-default", "pg-task, default settings", {});
const timed = pgTask("pg-task-timeout", "pg-task, with a `timeout`", {
  ...bestConfiguration,
  "pg_task.timeout": "1 hour",
});
const graphile = peerSubject(reference, "graphile-worker", graphileBest);
const graphileRetry = peerSubject(reference, "graphile-worker", graphileRetrying);
const direct = peerSubject("graphile-worker-direct", "graphile-worker, without `localQueue`", graphileDirect);
const boss = peerSubject("pg-boss-best", "pg-boss", bossBest);
const short = peerSubject("pg-boss-short", "pg-boss, policy `short`", bossShort);
const stately = peerSubject("pg-boss-stately", "pg-boss, policy `stately`", bossStately);
const flow = peerSubject("pg-boss-best", "pg-boss", bossFlow);

const variants: readonly Variant[] = [
  { work: plain, subjects: [own, timed, graphile, boss] },
  { work: keyed, subjects: [own, standard, graphile, short, stately] },
  { work: failing, subjects: [own, graphile, boss] },
  { work: retried, subjects: [own, graphileRetry, boss] },
  ...[chain, fanOut, fanIn].map((work) => ({ work, subjects: [own, graphile, direct, flow] })),
];
const rows: readonly Subject[] = [own, standard, timed, graphile, direct, boss, short, stately];

/** The kinds of work that this measure adds to those of the other measures. */
export const orderWorks: readonly Work[] = variants.map(({ work }) => work);

/** Tasks with keys, tasks that are tried again, and tasks that wait for others. */
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
        .map(({ work, subjects }) => ({ work, subjects: subjects.filter(asked) })),
    );
  },
  report: (raw) => {
    const to = comparedWith(raw);
    const works = orderWorks.filter(({ name }) => raw.runs.some((run) => run.work === name));
    const there = rows.filter(({ name }) => raw.runs.some((run) => run.subject === name));
    return {
      title: "Keys, retries and order",
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
      note: `Tasks per second with the best settings, as ratios to “${there.find(({ name }) => name === to)?.title ?? to}” in the same round; each figure is the median over all rounds. Each task is a \`SELECT 1\`, which divides by zero where it has to fail. The benchmark verified that each task was done once, failed as often as it had to, and started after those for which it waits. A retry of graphile-worker starts 2.7 s after the failure, which its rate includes; pg-task and pg-boss retry at once. graphile-worker's jobs add their successors themselves.`,
    };
  },
};
