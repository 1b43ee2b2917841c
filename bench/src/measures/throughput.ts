import { throughputPlot } from "../report/plot.js";
import { subjects as allSubjects } from "../subjects/all.js";
import { works } from "../work.js";
import type { Bench, Measure } from "./measure.js";
import { comparedWith, medianRate, rateOf, ratio, type Run, type Throughput } from "./ratios.js";
import { runOnce } from "./runOnce.js";

/** Runs all subjects in turn, round by round, each run in a new database. */
async function runAll(bench: Bench): Promise<Throughput> {
  const runs: Run[] = [];
  const { rounds, work: asked } = bench.options;
  const wanted = works.filter(({ name }) => asked.length === 0 || asked.includes(name));
  for (const work of wanted) {
    for (let round = 1; round <= rounds; round += 1) {
      for (const subject of bench.subjects) {
        if (!subject.does(work)) continue;
        const timing = await runOnce(bench, subject, work);
        runs.push({ work: work.name, subject: subject.name, round, ...timing });
        const rate = Math.round(rateOf(timing));
        bench.say(`${work.name}, round ${round}, ${subject.name}: ${rate}/s`);
      }
    }
  }
  return { runs };
}

export const throughput: Measure<Throughput> = {
  name: "throughput",
  concerns: () => true,
  run: runAll,
  plot: (raw) => throughputPlot(raw),
  report: (raw) => {
    const to = comparedWith(raw);
    const there = works.filter(({ name }) => raw.runs.some((run) => run.work === name));
    const named = allSubjects.filter(({ name }) => raw.runs.some((run) => run.subject === name));
    const cell = (work: string, subject: string): string => ratio(raw, work, subject, to)?.toFixed(2) ?? "–";
    return {
      title: "Tasks per second",
      head: ["", ...there.map(({ title }) => title)],
      rows: [
        ...named.map(({ name, title }) => [title, ...there.map((work) => cell(work.name, name))]),
        [
          "1.00 is, in tasks/s",
          ...there.map(({ name }) => Math.round(medianRate(raw, name, to) ?? 0).toLocaleString("en")),
        ],
      ],
      note: `In each round, a rate was divided by that of “${named.find(({ name }) => name === to)?.title ?? to}”. Each figure is the median of these ratios over all rounds. The benchmark verified that each task was done exactly once, and that each row that a task had to write exists exactly once.`,
    };
  },
};
