import { serverLabel, serversOf } from "../../shared/postgres/target/target.js";
import type { Configuration, Entry } from "../../shared/config/types.js";
import { databaseOf, isSameDatabase, type ReleasedDatabase } from "../../supervisor/releasedDatabases.js";

const labelOf = ({ target }: Pick<Entry, "target">): string => serversOf(target).map(serverLabel).join(",");

/** A database on another server can have the name of the control database. */
export const isControlDatabase = ({ control }: Configuration, entry: Entry): boolean =>
  entry.target.database === control.database && (!entry.elsewhere || labelOf(entry) === labelOf({ target: control }));

/** How `release` and `serve` name the database of an entry; the second name says which server is meant. */
export const databaseNames = (entry: Entry): readonly [string, string] => [
  entry.target.database,
  `${labelOf(entry)}/${entry.target.database}`,
];

export const releaseOf = (released: readonly ReleasedDatabase[], entry: Entry): ReleasedDatabase | undefined =>
  released.find((each) => isSameDatabase(each, databaseOf(entry)));
