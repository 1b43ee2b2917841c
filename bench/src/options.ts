import { parseArgs } from "node:util";

/** What to measure, and how much of it. */
export interface Options {
  /** Names of measures, all of them when empty. */
  readonly measures: readonly string[];
  /** Only subjects whose name begins with one of these; all of them when empty. */
  readonly only: readonly string[];
  /** Only these kinds of work; all of them when empty. */
  readonly work: readonly string[];
  /** Small numbers, for seeing that all of it works: the figures mean nothing. */
  readonly quick: boolean;
  /** Tasks of one throughput run. */
  readonly tasks: number;
  readonly rounds: number;
  /** Rows where the question is what a large table costs. */
  readonly rows: number;
  /** How long idleness is watched, in s. */
  readonly idle: number;
  /** Single tasks of the latency measure. */
  readonly samples: number;
  /** How long one round of the producers lasts, in s. */
  readonly seconds: number;
  /** Writes the page from the results that are there, and measures nothing. */
  readonly page: boolean;
}

const full = { tasks: 20_000, rounds: 3, rows: 1_000_000, idle: 120, samples: 500, seconds: 5 };
const small = { tasks: 2000, rounds: 1, rows: 5000, idle: 3, samples: 20, seconds: 2 };

export const usage = `npm run bench -- [MEASURE…] [--only SUBJECT,…] [--work WORK,…] [--quick] [--tasks N] [--rounds N]
                  [--rows N] [--idle SECONDS] [--samples N] [--seconds N] [--page]`;

/** @throws TypeError of node:util for what it does not know, RangeError for what is no number. */
export function readOptions(args: readonly string[]): Options {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      only: { type: "string", multiple: true, default: [] },
      work: { type: "string", multiple: true, default: [] },
      quick: { type: "boolean", default: false },
      page: { type: "boolean", default: false },
      tasks: { type: "string" },
      rounds: { type: "string" },
      rows: { type: "string" },
      idle: { type: "string" },
      samples: { type: "string" },
      seconds: { type: "string" },
    },
  });
  const usual = values.quick ? small : full;
  const number = (name: keyof typeof full): number => {
    const given = values[name];
    if (given === undefined) return usual[name];
    const value = Number(given);
    if (Number.isInteger(value) && value >= 1) return value;
    throw new RangeError(`--${name}: expected a whole number from 1, got ${given}`);
  };
  return {
    measures: positionals,
    only: values.only.flatMap((names) => names.split(",")),
    work: values.work.flatMap((names) => names.split(",")),
    quick: values.quick,
    page: values.page,
    tasks: number("tasks"),
    rounds: number("rounds"),
    rows: number("rows"),
    idle: number("idle"),
    samples: number("samples"),
    seconds: number("seconds"),
  };
}
