import type { Databases } from "../database.js";
import type { Options } from "../options.js";
import type { Subject } from "../subjects/subject.js";

/** What a measure works with. */
export interface Bench {
  readonly databases: Databases;
  /** Path of the Node that runs what is measured. */
  readonly node: string;
  readonly options: Options;
  /** Those that were asked for. */
  readonly subjects: readonly Subject[];
  /** Shows how far it is. */
  readonly say: (line: string) => void;
}

export interface Section {
  readonly title: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** What the figures are, in a sentence or two. */
  readonly note: string;
}

/** One kind of measurement. */
export interface Measure<Raw = unknown> {
  readonly name: string;
  /** Left out unless it is asked for. */
  readonly optional?: true;
  /** Which of the subjects it measures. */
  concerns(subject: Subject): boolean;
  /** Resolves to what is kept, in JSON. */
  run(bench: Bench): Promise<Raw>;
  report(raw: Raw): Section;
  /** An SVG of it. */
  plot?(raw: Raw): string;
}
