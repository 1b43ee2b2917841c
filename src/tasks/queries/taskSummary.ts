import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { maskRemote } from "../maskRemote.js";
import { isoTime, milliseconds } from "../time.js";

/** A task in a list. Times are ISO 8601, or infinity; texts are cut. */
export interface TaskSummary {
  /** May be larger than a number is exact. */
  readonly id: string;
  readonly parent: string | null;
  readonly state: string;
  readonly group: string | null;
  readonly plan: string;
  readonly start: string | null;
  readonly stop: string | null;
  /** How long it ran, or has been running, in ms. */
  readonly tookMs: number | null;
  /** Due, not due yet, or null: does not wait. */
  readonly ready: boolean | null;
  /** Whether a session has it. */
  readonly held: boolean;
  readonly pid: number | null;
  readonly max: number | null;
  readonly repeat: string | null;
  /** Its password masked. */
  readonly remote: string | null;
  readonly input: string;
  readonly error: string | null;
  /** Null also when it is very long. */
  readonly output: string | null;
  readonly outputBytes: number | null;
}

/** Of a longer output not even the beginning is read: some servers unpack the whole for it. */
const longestTouched = 1_000_000;

const finite = (time: string): string => `isfinite(${time}::timestamptz)`;

/** SQL of a summary's columns, of the table `t`; `substr` reads no more of a stored text than it needs. */
const columns = (characters: number): string => `
  t.id::text AS id, t.parent::text AS parent, t.state::text AS state, t."group"::text AS "group",
  ${isoTime("t.plan")} AS plan, ${isoTime("t.start")} AS start, ${isoTime("t.stop")} AS stop,
  ${milliseconds(
    `CASE WHEN NOT ${finite("t.start")} THEN NULL WHEN t.owner IS NOT NULL THEN clock_timestamp() - t.start::timestamptz
      WHEN ${finite("t.stop")} THEN t.stop::timestamptz - t.start::timestamptz END`,
  )} AS "tookMs",
  t.ready, t.owner IS NOT NULL AS held, t.pid::float8 AS pid, t.max::float8 AS max,
  CASE WHEN t.repeat > interval '0' THEN t.repeat::text END AS repeat, t.remote::text AS remote,
  substr(t.input::text, 1, ${characters}) AS input, substr(t.error::text, 1, ${characters}) AS error,
  CASE WHEN octet_length(t.output::text) <= ${longestTouched} THEN substr(t.output::text, 1, ${characters}) END AS output,
  octet_length(t.output::text)::float8 AS "outputBytes"`;

/**
 * Tasks in the order of `ids`, without those that are gone.
 *
 * @param characters most that a summary has of input, output and error
 */
export async function readSummaries(
  client: Client,
  { qualified }: TaskTable,
  ids: readonly string[],
  characters: number,
): Promise<TaskSummary[]> {
  if (ids.length === 0) return [];
  const { rows } = await client.query<TaskSummary>(
    `SELECT ${columns(characters)} FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[])`,
    [ids],
  );
  const found = new Map(rows.map((row) => [row.id, masked(row)]));
  return ids.flatMap((id) => found.get(id) ?? []);
}

const masked = (row: TaskSummary): TaskSummary =>
  row.remote === null ? row : { ...row, remote: maskRemote(row.remote) };
