import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { Client } from "../../shared/postgres/client.js";
import type { ActiveGroups } from "../groups/groups.js";
import { laneOf } from "../schema/lane.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

interface Place {
  readonly hash: number;
  readonly lane: string | null;
  readonly group: string;
}

/** Finds out to which lanes and shares the groups belong that have become startable. */
export async function placeGroups(client: Client, table: TaskTable, groups: ActiveGroups): Promise<void> {
  const unknown = groups.ranking.takeUnknown();
  if (unknown.length === 0) return;
  const { shares } = groups;
  let places = new Map<number, Place>();
  try {
    const ids = unknown.flatMap(({ head }) => (head === null ? [] : String(head.id)));
    places = new Map((await readPlaces(client, table, ids)).map((place) => [place.hash, place]));
  } catch (error) {
    if (!isTransient(error)) throw error;
  } finally {
    for (const group of unknown) {
      const place = places.get(group.hash);
      // A head that is gone is replaced by the next scan.
      if (place === undefined || shares !== groups.shares) groups.ranking.place(group, undefined);
      else groups.ranking.place(group, place.lane, shares?.nameOf(place));
    }
  }
}

async function readPlaces(client: Client, table: TaskTable, ids: readonly string[]): Promise<Place[]> {
  const { rows } = await client.query<Place>({
    name: "places",
    text: `
SELECT hash, ${laneOf(table)} AS lane, "group" FROM ${table.qualified} WHERE id = ANY ($1::bigint[])`,
    values: [ids],
  });
  return rows;
}
