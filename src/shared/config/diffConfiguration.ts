import { isDeepStrictEqual } from "node:util";
import type { Configuration, Entry } from "./types.js";
import type { ConnectionTarget } from "../postgres/target/target.js";
import { parameters } from "./parameterTable.js";

/** Differences between two configurations. */
export interface ConfigurationChanges {
  readonly added: readonly Entry[];
  readonly removed: readonly Entry[];
  /** Entries whose connection changed. Their managers must be restarted. */
  readonly restarted: readonly Entry[];
  /** Entries whose managers keep running, with the new values. */
  readonly kept: readonly Entry[];
  /** Names of the changed values of each entry, by entry key. Entries in `restarted` are included. */
  readonly changed: Readonly<Record<string, readonly string[]>>;
  /** Names of the parameters whose values have changed at the top level of the file, outside its entries. */
  readonly parameters: readonly string[];
}

/** Parameters that managers do not use. If one of them changes, this does not count as a change of an entry. */
const supervisorOnly: ReadonlySet<string> = new Set(
  parameters.filter((parameter) => parameter.supervisorOnly === true).map(({ name }) => name),
);

/** Where the password is looked up if none is given. Whether it is given shows in `password`. */
const passwordLookup: ReadonlySet<string> = new Set<keyof ConnectionTarget>(["passwordFile"]);

export function diffConfigurations(before: Configuration, now: Configuration): ConfigurationChanges {
  const old = new Map(before.entries.map((entry) => [entry.key, entry]));
  const keys = new Set(now.entries.map(({ key }) => key));
  const pairs = now.entries.flatMap((entry) => {
    const previous = old.get(entry.key);
    return previous === undefined ? [] : [{ previous, entry }];
  });
  const moved = pairs.filter(({ previous, entry }) => !isDeepStrictEqual(previous.target, entry.target));
  const restarted = moved.map(({ entry }) => entry);
  const isRestarted = new Set(restarted);
  const changed = pairs
    .map(({ previous, entry }) => [entry.key, entryChanges(previous, entry)] as const)
    .filter(([, names]) => names.length > 0);
  return {
    added: now.entries.filter(({ key }) => !old.has(key)),
    removed: before.entries.filter(({ key }) => !keys.has(key)),
    restarted,
    kept: pairs.map(({ entry }) => entry).filter((entry) => !isRestarted.has(entry)),
    changed: Object.fromEntries(changed),
    parameters: changedKeys(before.parameters, now.parameters),
  };
}

function entryChanges(before: Entry, now: Entry): string[] {
  const ofManagers = changedKeys(before.parameters, now.parameters).filter((name) => !supervisorOnly.has(name));
  return [
    ...changedKeys(before.target, now.target).filter((name) => !passwordLookup.has(name)),
    ...changedKeys(before.fixed, now.fixed),
    ...(before.create === now.create && before.createRoleAndDatabase === now.createRoleAndDatabase ? [] : ["create"]),
    ...ofManagers,
  ];
}

/** Returns the keys whose values differ. */
function changedKeys(before: object, now: object): string[] {
  const [a, b] = [new Map(Object.entries(before)), new Map(Object.entries(now))];
  return [...new Set([...a.keys(), ...b.keys()])].filter((key) => !isDeepStrictEqual(a.get(key), b.get(key)));
}
