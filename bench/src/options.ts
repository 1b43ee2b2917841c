import { parseArgs } from "node:util";

/** What to measure, and how much. */
export interface Options {
  /** Names of the measures to run. If empty, all measures run except optional ones. */
  readonly measures: readonly string[];
  /** Prefixes of the names of the subjects to measure. If empty, all subjects are measured. */
  readonly only: readonly string[];
  /** Names of the kinds of work to measure. If empty, all kinds are measured. */
  readonly work: readonly string[];
  /** Whether to use small sizes, to check that everything works. The figures are then meaningless. */
  readonly quick: boolean;
  /** Number of tasks in one run. */
  readonly tasks: number;
  readonly rounds: number;
  /** Number of rows in a large table. */
  readonly rows: number;
  /** How many idle tables are measured in one database. A tenth of them is measured in as many databases. */
  readonly tables: number;
  /** How long idle processes are measured, in s. */
  readonly idle: number;
  /** For each subject of the latency measure, how many tasks measure the start, and how many measure the end. */
  readonly samples: number;
  /** Duration of one run of the producers, and of one observation of a large table, in s. */
  readonly seconds: number;
  /** Whether to measure nothing and only write the page from the stored results. */
  readonly page: boolean;
}

const full = { tasks: 20_000, rounds: 3, rows: 1_000_000, tables: 1000, idle: 120, samples: 500, seconds: 5 };
const small = { tasks: 2000, rounds: 1, rows: 5000, tables: 10, idle: 3, samples: 20, seconds: 2 };

export const usage = `npm run bench -- [MEASURE…] [--only SUBJECT,…] [--work WORK,…] [--quick] [--tasks N] [--rounds N]
                  [--rows N] [--tables N] [--idle SECONDS] [--samples N] [--seconds N] [--page]`;

/** @throws TypeError of node:util for an unknown option, RangeError for an invalid number */
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
      tables: { type: "string" },
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
    tables: number("tables"),
    idle: number("idle"),
    samples: number("samples"),
    seconds: number("seconds"),
  };
}
