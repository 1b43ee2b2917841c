import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../../manager/table.js";
import type { BriefTask, TaskFilter, Tasks } from "../schemas.js";
import { briefColumns } from "./columns.js";

/** Rows that one statement looks through at most. */
const windowRows = 10_000;
/** When no further statement is begun, in ms after the first. */
const enoughMs = 500;

interface Found {
  readonly looked: number;
  /** The smallest id that was looked at; null when there was none. */
  readonly last: string | null;
  readonly tasks: BriefTask[];
}

/**
 * One page of tasks, newest first. No index has state, group or text: with a filter the rows are
 * looked through by id, a window at a time, for as long as that is quick; `next` goes on from there.
 */
export async function listTasks(
  client: Client,
  table: TaskTable,
  filter: TaskFilter,
): Promise<Tasks> {
  const began = performance.now();
  const tasks: BriefTask[] = [];
  let before = filter.before ?? null;
  let looked = 0;
  for (;;) {
    const wanted = filter.limit - tasks.length;
    const found = await look(client, table, { ...filter, before }, wanted);
    looked += found.looked;
    tasks.push(...found.tasks.slice(0, wanted));
    if (found.tasks.length > wanted) return { tasks, next: tasks.at(-1)?.id ?? null, looked };
    if (found.looked < windowRows) return { tasks, next: null, looked };
    before = found.last;
    const enough = tasks.length === filter.limit || performance.now() - began > enoughMs;
    if (enough) return { tasks, next: before, looked };
  }
}

/** One window's tasks, one more than wanted if there are so many. */
async function look(
  client: Client,
  table: TaskTable,
  filter: Omit<TaskFilter, "before"> & { readonly before: string | null },
  wanted: number,
): Promise<Found> {
  const values: unknown[] = [];
  const place = (value: unknown): string => `$${values.push(value)}`;
  const from = filter.before === null ? "" : `WHERE id < ${place(filter.before)}::bigint`;
  const conditions = conditionsOf(filter, place);
  const filtered = conditions.length > 0;
  const rows = filtered ? windowRows : wanted + 1;
  const { rows: answer } = await client.query<Found>(
    `WITH seen AS (
       SELECT * FROM ${table.qualified} ${from} ORDER BY id DESC LIMIT ${rows}
     ), found AS (
       SELECT * FROM seen ${filtered ? `WHERE ${conditions.join(" AND ")}` : ""}
       ORDER BY id DESC LIMIT ${wanted + 1}
     )
     SELECT (SELECT count(*)::int FROM seen) AS looked, (SELECT min(id)::text FROM seen) AS last,
       coalesce((SELECT jsonb_agg(to_jsonb(f)) FROM
         (SELECT ${briefColumns} FROM found ORDER BY found.id DESC) AS f), '[]') AS tasks`,
    values,
  );
  return answer[0] ?? { looked: 0, last: null, tasks: [] };
}

/** A pattern that finds the text itself. */
const like = (text: string): string => `%${text.replace(/[\\%_]/g, "\\$&")}%`;

function conditionsOf(
  filter: Omit<TaskFilter, "before">,
  place: (value: unknown) => string,
): string[] {
  const { state, group, text, from, to } = filter;
  return [
    ...(state === undefined ? [] : [`state::text = ANY (${place(state.split(","))}::text[])`]),
    ...(group === undefined ? [] : [`"group"::text = ${place(group)}`]),
    ...(from === undefined ? [] : [`plan::timestamptz >= ${place(from)}::timestamptz`]),
    ...(to === undefined ? [] : [`plan::timestamptz < ${place(to)}::timestamptz`]),
    ...(text === undefined
      ? []
      : [`concat(input::text, ' ', error::text) ILIKE ${place(like(text))}`]),
  ];
}
