import type { Entry } from "../../shared/config/types.js";
import { serversOf } from "../../shared/postgres/target/target.js";
import type { SourceJob } from "./source.js";

const isLocalHost = (host: string): boolean => /^(?:\/|localhost$|127\.|::1$)/.test(host);

/**
 * The entry whose tasks run in the database and as the role of the job: because it is the entry's user, or because its
 * tasks run as their users.
 *
 * @param anyOwner whether jobs of other roles may run as the entry's user
 * @returns why there is none, as text
 */
export function findEntry(job: SourceJob, entries: readonly Entry[], anyOwner: boolean): Entry | string {
  const { database, host, owner } = job;
  const reachesHost = ({ target }: Entry): boolean =>
    host === undefined || isLocalHost(host) || serversOf(target).some((server) => server.host === host);
  const there = entries.filter(
    (entry) => (database === null || entry.target.database === database) && reachesHost(entry),
  );
  if (there.length === 0)
    return `no entry for the database ${database ?? ""}${host === undefined ? "" : ` on ${host}`}`;
  const owned = there.filter(({ target }) => owner === null || target.user === owner);
  const users = owned.length === 0 ? there.filter((entry) => entry.users) : [];
  const candidates = [owned, users, anyOwner ? there : []].find(({ length }) => length > 0) ?? [];
  const [entry, ...more] = candidates;
  if (entry === undefined) {
    const others = [...new Set(there.map(({ target }) => target.user))].join(" or ");
    return `owner ${owner}: needs users; or an entry with this user; or --any-owner, to let it run as ${others}`;
  }
  return more.length === 0 ? entry : `several entries fit: choose one with --entry or --table`;
}
