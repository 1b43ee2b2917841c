import { median } from "../statistics.js";
import { reference } from "../subjects/all.js";
import type { Timing } from "../subjects/subject.js";

export interface Run extends Timing {
  readonly work: string;
  readonly subject: string;
  readonly round: number;
}

export interface Throughput {
  readonly runs: readonly Run[];
}

export function rateOf({ tasks, ms }: Timing): number {
  return (tasks * 1000) / ms;
}

/**
 * Returns a subject's rate divided by the rate of the subject `to` in the same round, as the median of all rounds.
 *
 * @returns null if there is no round with both subjects
 */
export function ratio({ runs }: Throughput, work: string, subject: string, to: string): number | null {
  const of = (name: string) => runs.filter((run) => run.work === work && run.subject === name);
  const ratios = of(subject).flatMap((run) => {
    const other = of(to).find(({ round }) => round === run.round);
    return other === undefined ? [] : [rateOf(run) / rateOf(other)];
  });
  return ratios.length === 0 ? null : median(ratios);
}

/** Returns the subject to compare with: the reference, or the first subject if the reference was not measured. */
export function comparedWith({ runs }: Throughput): string {
  const first = runs[0]?.subject ?? reference;
  return runs.some(({ subject }) => subject === reference) ? reference : first;
}

export function medianRate({ runs }: Throughput, work: string, subject: string): number | null {
  const rates = runs.filter((run) => run.work === work && run.subject === subject).map(rateOf);
  return rates.length === 0 ? null : median(rates);
}
