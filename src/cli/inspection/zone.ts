import { describeUnknownZone, placeZone, unknownZones } from "../../manager/schema/unknownZones.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { exitCodes } from "../../shared/errorCodes.js";
import type { FileParameters } from "../../shared/config/parameterTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { fail, ok, type Check } from "./check.js";

/** What the configuration says about a table. */
export interface ConfiguredParameters {
  /** The parameters of the table's entry. */
  readonly parameters: FileParameters;
  /** `pg_task.zone` of the file, which the entry's own value replaces. */
  readonly fileZone: string;
}

/** Checks that `pg_task.zone` is the name of a time zone, wherever it is set. */
export async function checkZone(
  client: Client,
  table: TaskTable,
  { parameters, fileZone }: ConfiguredParameters,
): Promise<Check[]> {
  const configured = parameters["pg_task.zone"];
  const unknown = await unknownZones(client, table, configured);
  if (unknown.length === 0) return [ok("zone", "pg_task.zone is not set, or the name of a time zone")];
  return unknown.map((each) => {
    const { text, remedy } = describeUnknownZone(placeZone(each, configured === fileZone));
    return fail("zone", text, remedy, exitCodes.CONFIG);
  });
}
