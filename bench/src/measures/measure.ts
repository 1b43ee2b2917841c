import type { Databases } from "../database.js";
import type { Options } from "../options.js";
import type { Subject } from "../subjects/subject.js";

/** The environment of a measure. */
export interface Bench {
  readonly databases: Databases;
  /** Path of the Node that runs everything that is measured. */
  readonly node: string;
  readonly options: Options;
  /** The requested subjects. */
  readonly subjects: readonly Subject[];
  /** Reports progress. */
  readonly say: (line: string) => void;
}

export interface Section {
  readonly title: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** Explains the figures in a sentence or two. */
  readonly note: string;
}

/** One kind of measurement. */
export interface Measure<Raw = unknown> {
  readonly name: string;
  /** If set, the measure runs only when it is requested by name. */
  readonly optional?: true;
  /** Returns whether the measure includes this subject. */
  concerns(subject: Subject): boolean;
  /** Resolves to the raw figures, which are stored as JSON. */
  run(bench: Bench): Promise<Raw>;
  report(raw: Raw): Section;
  /** An SVG chart of the figures. */
  plot?(raw: Raw): string;
}
