import type { TaskTable } from "../../manager/schema/taskTable.js";
import { errorMessage } from "../../shared/errors.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { readRuleTimes, type RuleTimes, readSchedules, type Schedules } from "../../tasks/queries/schedules.js";
import { ApiError } from "../errors.js";
import type { NextQuery, ScheduleQuery } from "./taskSchemas.js";

/** In characters. */
const excerptLength = 300;
const shownRuns = 5;

export async function readScheduleList(
  client: Client,
  table: TaskTable,
  { group, role, text, limit }: ScheduleQuery,
): Promise<Schedules> {
  const filter = omitUndefined({ group, role, text });
  return await readSchedules(client, table, { filter, limit, characters: excerptLength, runs: shownRuns });
}

/** @throws ApiError INVALID with the server's message */
export async function readNext(
  client: Client,
  { schema }: TaskTable,
  { rule, zone, since, count, defaultZone }: NextQuery & { readonly defaultZone: string },
): Promise<RuleTimes> {
  try {
    const request = { rule, zone: zone ?? null, defaultZone, since: since ?? null, count };
    return await readRuleTimes(client, schema, request);
  } catch (error) {
    // A data exception means that a value is invalid.
    if (sqlState(error)?.startsWith("22") !== true) throw error;
    throw new ApiError("INVALID", errorMessage(error), { cause: error });
  }
}
