import { JsonSyntaxError, parseJson } from "../../shared/config/parseJson.js";
import { PgTaskError } from "../../shared/errors.js";
import { refuseUnknownKeys } from "../../shared/refuseUnknownKeys.js";
import { columnList, valueKind, type NamedColumn } from "../../shared/taskColumns.js";
import { jobKeys, toJob, type Job } from "../../tasks/jobs/job.js";

export interface JobsFile {
  /** What all keys begin with. Schedules whose keys begin otherwise are none of the file's business. */
  readonly prefix: string;
  readonly jobs: readonly Job[];
}

const fileKeys = { $schema: true, prefix: true, jobs: true };

/** @throws PgTaskError USAGE or TASK_REJECTED, with the name of the file */
export function parseJobs(name: string, text: string): JobsFile {
  try {
    return toJobsFile(parseJson(text));
  } catch (error) {
    if (error instanceof JsonSyntaxError) throw new PgTaskError("USAGE", error.describe(name));
    if (!(error instanceof PgTaskError)) throw error;
    throw new PgTaskError(error.code, `${name}: ${error.message}`, { cause: error });
  }
}

function toJobsFile(content: unknown): JobsFile {
  if (!isObject(content)) throw new PgTaskError("USAGE", `expected an object with "jobs"`);
  refuseUnknownKeys(content, fileKeys, "a property of a file with jobs");
  const { prefix = "", jobs } = content;
  if (typeof prefix !== "string") throw new PgTaskError("USAGE", "expected prefix to be a text");
  if (!isObject(jobs)) {
    throw new PgTaskError("USAGE", `expected jobs to be an object like { "nightly": { "rule": …, "input": … } }`);
  }
  return { prefix, jobs: Object.entries(jobs).map(([key, job]) => toJob(`${prefix}${key}`, job)) };
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const text = { type: "string" };
const strings = { type: "array", items: text };

const kinds: Readonly<Record<ReturnType<typeof valueKind>, object>> = {
  id: { type: "integer" },
  ids: { type: "array", items: { type: "integer" } },
  number: { type: "integer" },
  interval: text,
  time: text,
  flag: { type: "boolean" },
  char: { type: "string", maxLength: 1 },
  text,
  list: strings,
  json: { type: ["array", "object"] },
};

function propertyOf(column: NamedColumn): object {
  const { name, meaning } = column;
  if (name === "input") return { description: `${meaning}, or its lines`, anyOf: [text, strings] };
  const kind = kinds[valueKind(column)];
  return "nullable" in column
    ? { description: meaning, anyOf: [kind, { type: "null" }] }
    : { description: meaning, ...kind };
}

/** A JSON Schema, with which editors complete and check a file. */
export function jobsSchemaText(): string {
  const columns = columnList.filter(({ name }) => Object.hasOwn(jobKeys, name));
  const job = {
    description: "a schedule, whose key is its name; columns that are left out have their defaults",
    type: "object",
    properties: {
      ...Object.fromEntries(columns.map((column) => [column.name, propertyOf(column)])),
      columns: { description: "values of columns of your own, by name", type: "object" },
      paused: { description: "whether it is paused; if left out, it stays as it is", type: "boolean" },
    },
    required: ["input"],
    oneOf: [{ required: ["rule"] }, { required: ["repeat"] }],
    additionalProperties: false,
  };
  const schema = {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Jobs for pg-task apply",
    type: "object",
    properties: {
      $schema: { description: "for editors: where the schema is", type: "string" },
      prefix: { description: "what all keys begin with; --prune ends no others", type: "string" },
      jobs: { description: "the jobs by name", type: "object", additionalProperties: job },
    },
    required: ["jobs"],
    additionalProperties: false,
  };
  return `${JSON.stringify(schema, null, 2)}\n`;
}
