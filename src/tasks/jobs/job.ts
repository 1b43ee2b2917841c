import { PgTaskError } from "../../shared/errors.js";
import { refuseUnknownKeys, type KnownKeys } from "../../shared/refuseUnknownKeys.js";
import type { NewRow } from "../commands/addTask.js";
import { toRow } from "../commands/toRow.js";
import { newTaskKeys, type NewTask } from "../newTask.js";

/** What a job cannot have: its name is the key, and each of its runs is a row that waits for nothing. */
type NotOfJobs = "key" | "after" | "upon" | "parent" | "delay";

/**
 * A schedule with a key. Columns that are left out have their defaults. `plan` is the earliest time of the first run,
 * and counts only when the job is added or gets another schedule.
 */
export interface JobDefinition extends Omit<NewTask, NotOfJobs | "input" | "args"> {
  /** The SQL to run, or its lines. */
  readonly input: string | readonly string[];
  readonly args?: unknown;
  /** Whether it is paused. If left out, a new job is not, and any other stays as it is. */
  readonly paused?: boolean | undefined;
}

/** A job whose values are those of the columns. */
export interface Job {
  readonly key: string;
  /** Without its key. */
  readonly row: NewRow;
  readonly paused: boolean | undefined;
}

const { key: _key, after: _after, upon: _upon, parent: _parent, delay: _delay, ...taskKeys } = newTaskKeys;

export const jobKeys: KnownKeys<JobDefinition> = { ...taskKeys, paused: true };

/** @throws PgTaskError USAGE or TASK_REJECTED, which begins with the name of the job */
export function toJob(key: string, definition: unknown): Job {
  try {
    return readJob(key, definition);
  } catch (error) {
    if (!(error instanceof PgTaskError)) throw error;
    throw new PgTaskError(error.code, `job ${JSON.stringify(key)}: ${error.message}`, { cause: error });
  }
}

function readJob(key: string, definition: unknown): Job {
  if (!isDefinition(definition)) throw new PgTaskError("USAGE", "expected an object with the columns of its task");
  refuseUnknownKeys(definition, jobKeys, "a property of a job (columns of your own belong in its property columns)");
  const { input, paused, ...columns } = definition;
  if (paused !== undefined && typeof paused !== "boolean") {
    throw new PgTaskError("USAGE", "expected paused to be true or false");
  }
  const { rule, repeat } = columns;
  if ((rule === undefined || rule === null) === (repeat === undefined)) {
    throw new PgTaskError("USAGE", "expected a rule or a repeat, which say when it runs");
  }
  if (countsFromNow(rule)) {
    throw new PgTaskError("USAGE", "a rule with COUNT needs a DTSTART, from which to count; or write UNTIL");
  }
  const row = toRow({ ...columns, input: joined(input), key });
  const { key: _, ...others } = Object.fromEntries(row.columns);
  return { key, row: { ...row, columns: new Map(Object.entries(others)) }, paused };
}

const isDefinition = (given: unknown): given is JobDefinition =>
  typeof given === "object" && given !== null && !Array.isArray(given);

/** The times would be others each time the definition is applied. */
const countsFromNow = (rule: string | null | undefined): boolean =>
  typeof rule === "string" && /\bCOUNT=/i.test(rule) && !/\bDTSTART\b/i.test(rule);

function joined(input: unknown): string {
  const lines: readonly unknown[] = Array.isArray(input) ? input : [input];
  const texts = lines.filter((line) => typeof line === "string");
  if (texts.length === lines.length && texts.length > 0) return texts.join("\n");
  throw new PgTaskError("USAGE", "expected input to be the SQL to run, or an array of its lines");
}
