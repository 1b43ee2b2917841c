import type { Subject } from "../subjects/subject.js";
import type { Work } from "../work.js";
import type { Bench } from "./measure.js";
import { runOnce } from "./runOnce.js";
import { medianRate, rateOf, type Run, type Throughput } from "./ratios.js";

/** Subjects to compare for one kind of work. */
export interface Variant {
  readonly work: Work;
  readonly subjects: readonly Subject[];
}

export type Variants = Throughput;

export async function runVariants(bench: Bench, variants: readonly Variant[]): Promise<Variants> {
  const runs: Run[] = [];
  for (const { work, subjects } of variants) {
    for (let round = 1; round <= bench.options.rounds; round += 1) {
      for (const subject of subjects) {
        const timing = await runOnce(bench, subject, work);
        runs.push({ work: work.name, subject: subject.name, round, ...timing });
        bench.say(`${work.name}, round ${round}, ${subject.title}: ${Math.round(rateOf(timing))}/s`);
      }
    }
  }
  return { runs };
}

export function medianOf(raw: Variants, work: string, subject: string): number {
  return medianRate(raw, work, subject) ?? Number.NaN;
}
