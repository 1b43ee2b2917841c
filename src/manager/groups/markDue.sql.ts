import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isNoneOf } from "../sql/byId.js";
import type { DueTask } from "../claim/claimFull.sql.js";
import { beside } from "../sql/head.js";

/** Most rows of one statement. */
export const maxMarkedDue = 1000;

type PromotedRow = Omit<DueTask, "id"> & { readonly id: string | number };

const toDue = ({ id, hash, max }: PromotedRow): DueTask => ({ id: String(id), hash, max });

/** SQL of the tasks to mark, those in parameter $1 left out. */
const overdue = ({ qualified }: TaskTable): string => `
  SELECT id FROM ${qualified} WHERE NOT ready AND plan <= now() AND owner IS NULL AND ${isNoneOf("id", "$1")}
  ORDER BY plan LIMIT ${maxMarkedDue} FOR NO KEY UPDATE SKIP LOCKED`;

/**
 * Marks tasks whose plan has come as due.
 *
 * @param except tasks not to look at this time.
 * @returns them, and whether there may be more.
 */
export async function markDue(
  client: Client,
  table: TaskTable,
  except: readonly string[] = [],
): Promise<{ readonly due: readonly DueTask[]; readonly more: boolean }> {
  const { rows } = await client.query<PromotedRow>({
    name: "promote",
    text: `
UPDATE ${table.qualified} SET ready = true WHERE id = ANY (ARRAY(${overdue(table)}))
RETURNING id, hash, ${beside} AS max`,
    values: [except],
  });
  return { due: rows.map(toDue), more: rows.length === maxMarkedDue };
}

/** The tasks that `promote` would mark. */
export async function dueTaskIds(
  client: Client,
  table: TaskTable,
  except: readonly string[],
): Promise<string[]> {
  const { rows } = await client.query<{ id: string | number }>({
    name: "promotable",
    text: overdue(table),
    values: [except],
  });
  return rows.map(({ id }) => String(id));
}

/** As `promote`, for those of these that are to be marked. */
export async function markTheseDue(
  client: Client,
  table: TaskTable,
  ids: readonly string[],
): Promise<readonly DueTask[]> {
  const { rows } = await client.query<PromotedRow>({
    name: "promote these",
    text: `
UPDATE ${table.qualified} SET ready = true
WHERE id = ANY (ARRAY(
  SELECT id FROM ${table.qualified} WHERE id = ANY ($1::bigint[]) AND ready IS FALSE AND plan <= now() AND owner IS NULL
  FOR NO KEY UPDATE SKIP LOCKED))
RETURNING id, hash, ${beside} AS max`,
    values: [ids],
  });
  return rows.map(toDue);
}
