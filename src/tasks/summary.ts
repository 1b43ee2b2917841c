import { maskRemote } from "./maskRemote.js";
import { isoTime, milliseconds } from "./time.js";

/** A task in a list. Times are ISO 8601, texts are cut. */
export interface TaskSummary {
  /** May be larger than a number is exact. */
  readonly id: string;
  readonly parent: string | null;
  readonly state: string;
  readonly group: string | null;
  readonly plan: string | null;
  readonly start: string | null;
  readonly stop: string | null;
  /** How long it ran, or has been running, in ms. */
  readonly tookMs: number | null;
  /** Whether a session has it. */
  readonly held: boolean;
  readonly pid: number | null;
  readonly max: number | null;
  readonly repeat: string | null;
  /** Its password masked. */
  readonly remote: string | null;
  readonly input: string;
  readonly output: string | null;
  readonly error: string | null;
}

/** Characters of input, output and error that a summary has. */
export const summaryLength = 1000;

/** SQL of a summary's columns, of the table `t`. */
export const summaryColumns = `
  t.id::text AS id, t.parent::text AS parent, t.state::text AS state, t."group"::text AS "group",
  ${isoTime("t.plan")} AS plan, ${isoTime("t.start")} AS start, ${isoTime("t.stop")} AS stop,
  ${milliseconds(
    `CASE WHEN t.owner IS NOT NULL THEN clock_timestamp() - t.start::timestamptz
      ELSE t.stop::timestamptz - t.start::timestamptz END`,
  )} AS "tookMs",
  t.owner IS NOT NULL AS held, t.pid::float8 AS pid, t.max::float8 AS max,
  CASE WHEN t.repeat > interval '0' THEN t.repeat::text END AS repeat, t.remote::text AS remote,
  left(t.input::text, ${summaryLength}) AS input, left(t.output::text, ${summaryLength}) AS output,
  left(t.error::text, ${summaryLength}) AS error`;

/** What a summary's row has to be shown without. */
export const masked = (row: TaskSummary): TaskSummary =>
  row.remote === null ? row : { ...row, remote: maskRemote(row.remote) };
