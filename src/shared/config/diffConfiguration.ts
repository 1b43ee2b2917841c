import { isDeepStrictEqual } from "node:util";
import type { Configuration, Entry, FileParameters } from "./types.js";

/** What another configuration means for the entries of the one before. */
export interface ConfigurationChanges {
  readonly added: readonly Entry[];
  readonly removed: readonly Entry[];
  /** With another user, password or way to connect: the manager has to be another one. */
  readonly restarted: readonly Entry[];
  /** What stays, as it is now, changed or not. */
  readonly kept: readonly Entry[];
  /** For each entry that changed, restarted ones included, the names of what did. */
  readonly changed: Readonly<Record<string, readonly string[]>>;
  /** Names of the parameters that changed in the file itself. */
  readonly parameters: readonly string[];
}

/** Parameters that are no manager's business. */
const supervisorOnly: ReadonlySet<string> = new Set<keyof FileParameters>([
  "pg_conf.max",
  "pg_conf.fetch",
  "pg_conf.grace",
  "pg_conf.name",
  "pg_task.data",
  "pg_task.user",
  "pg_http.listen",
  "pg_http.token",
]);

export function compareConfigurations(
  before: Configuration,
  now: Configuration,
): ConfigurationChanges {
  const old = new Map(before.entries.map((entry) => [entry.key, entry]));
  const keys = new Set(now.entries.map(({ key }) => key));
  const pairs = now.entries.flatMap((entry) => {
    const previous = old.get(entry.key);
    return previous === undefined ? [] : [{ previous, entry }];
  });
  const moved = pairs.filter(
    ({ previous, entry }) => !isDeepStrictEqual(previous.target, entry.target),
  );
  const restarted = moved.map(({ entry }) => entry);
  const changed = pairs
    .map(({ previous, entry }) => [entry.key, entryChanges(previous, entry)] as const)
    .filter(([, names]) => names.length > 0);
  return {
    added: now.entries.filter(({ key }) => !old.has(key)),
    removed: before.entries.filter(({ key }) => !keys.has(key)),
    restarted,
    kept: pairs.map(({ entry }) => entry).filter((entry) => !restarted.includes(entry)),
    changed: Object.fromEntries(changed),
    parameters: differing(before.parameters, now.parameters),
  };
}

function entryChanges(before: Entry, now: Entry): string[] {
  const parameters = differing(before.parameters, now.parameters);
  return [
    ...differing(before.target, now.target),
    ...differing(before.fixed, now.fixed),
    ...(before.create === now.create ? [] : ["create"]),
    ...parameters.filter((name) => !supervisorOnly.has(name)),
  ];
}

/** The keys whose values are not the same. */
function differing(before: object, now: object): string[] {
  const [a, b] = [new Map(Object.entries(before)), new Map(Object.entries(now))];
  return [...new Set([...a.keys(), ...b.keys()])].filter((key) => a.get(key) !== b.get(key));
}
