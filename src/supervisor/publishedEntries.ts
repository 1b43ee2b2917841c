import type { Entry } from "../shared/config/types.js";
import type { Client } from "../shared/postgres/client.js";
import { lockClasses, textLockKey } from "../shared/postgres/advisoryLocks.js";

/**
 * Returns a hash of the table that an entry names. Processes may reach the control connection's server under different
 * host names, so these are not part of the hash.
 */
const hashEntry = ({ elsewhere, key, target, schema, table }: Entry): number =>
  textLockKey(elsewhere ? key : JSON.stringify([target.database, schema, table]));

const hashName = (name: string): number => textLockKey(`cluster ${name}`);

/**
 * How many entries are published one by one. A process with more publishes one hash of them all, because the server's
 * lock table, which all its databases share, has only some thousand places.
 */
const maxSingly = 50;
/** Published by a process with more entries. */
const more = textLockKey("more");

/** Returns the hashes that a process of the cluster publishes: that of the cluster's name, and those of its entries. */
export function hashEntries(name: string, entries: readonly Entry[]): ReadonlySet<number> {
  const hashes = entries.map(hashEntry);
  const together = textLockKey(hashes.toSorted((a, b) => a - b).join(" "));
  const published = hashes.length > maxSingly ? [more, together] : hashes;
  return new Set([hashName(name), ...published]);
}

const without = (hashes: ReadonlySet<number>, others: ReadonlySet<number>): number[] =>
  [...hashes].filter((hash) => !others.has(hash));

export const areSame = (hashes: ReadonlySet<number>, others: ReadonlySet<number>): boolean =>
  hashes.size === others.size && without(hashes, others).length === 0;

/** Makes the entries of a process visible to other processes by shared locks, in place of the previous ones. */
export async function publishEntries(
  client: Client,
  hashes: ReadonlySet<number>,
  previous: ReadonlySet<number>,
): Promise<void> {
  await client.query(
    `SELECT pg_try_advisory_lock_shared($1, h) FROM unnest($2::integer[]) AS h
     UNION ALL SELECT pg_advisory_unlock_shared($1, h) FROM unnest($3::integer[]) AS h`,
    [lockClasses.entries, without(hashes, previous), without(previous, hashes)],
  );
}

/** What the processes of a cluster have published, by the pid of their backends. */
interface PublishedEntries {
  /** Those of the leader. Null if there is none, or if it has not published any yet. */
  readonly leader: ReadonlySet<number> | null;
  readonly all: ReadonlyMap<number, ReadonlySet<number>>;
}

export async function readPublishedEntries(control: Client, name: string): Promise<PublishedEntries> {
  const { rows } = await control.query<{ pid: number; leads: boolean; hashes: number[] }>(
    `SELECT e.pid, array_agg(e.objid::bigint::float8) AS hashes, EXISTS (
       SELECT FROM pg_catalog.pg_locks AS l
       WHERE l.pid = e.pid AND l.database = e.database AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
         AND l.classid = $1::bigint::oid AND l.objid = hashtext($2)::bigint & 4294967295) AS leads
     FROM pg_catalog.pg_locks AS e
     WHERE e.locktype = 'advisory' AND e.granted AND e.objsubid = 2 AND e.classid = $3::bigint::oid
       AND e.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
     GROUP BY e.pid, e.database`,
    [lockClasses.supervisor, name, lockClasses.entries],
  );
  const ofCluster = rows.filter(({ hashes }) => hashes.includes(hashName(name)));
  const all = new Map(ofCluster.map(({ pid, hashes }) => [pid, new Set(hashes)]));
  const leader = rows.find(({ leads }) => leads);
  return { leader: leader === undefined ? null : (all.get(leader.pid) ?? null), all };
}

/**
 * Says in which entries a process differs from the leader. Only those of this configuration can be named.
 *
 * @param entries those of this configuration
 * @returns null if both have the same entries
 */
export function describeOtherEntries(
  own: ReadonlySet<number>,
  leader: ReadonlySet<number>,
  { entries, who }: { readonly entries: readonly Entry[]; readonly who: string },
): string | null {
  if (areSame(own, leader)) return null;
  if (own.has(more) || leader.has(more)) return `which ones is not known, because there are more than ${maxSingly}`;
  const list = (hashes: readonly number[]): string => {
    const named = new Set(entries.filter((entry) => hashes.includes(hashEntry(entry))).map(({ key }) => key));
    const unnamed = hashes.length - named.size;
    const rest = unnamed === 0 ? [] : [`${unnamed} that this configuration does not name`];
    return [...named, ...rest].join(", ");
  };
  const [onlyOwn, onlyLeader] = [without(own, leader), without(leader, own)];
  return [
    ...(onlyOwn.length === 0 ? [] : [`only ${who} has ${list(onlyOwn)}`]),
    ...(onlyLeader.length === 0 ? [] : [`only the leader has ${list(onlyLeader)}`]),
  ].join("; ");
}
