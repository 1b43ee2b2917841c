import { isDeepStrictEqual } from "node:util";
import type { Configuration, Entry } from "./types.js";
import type { ConnectionTarget } from "../postgres/target/target.js";
import { parameters } from "./parameterTable.js";

export interface ConfigurationChanges {
  readonly added: readonly Entry[];
  readonly removed: readonly Entry[];
  readonly restarted: readonly Entry[];
  readonly kept: readonly Entry[];
  /** Names of the changed values of each entry, by entry key. Entries in `restarted` are included. */
  readonly changed: Readonly<Record<string, readonly string[]>>;
  readonly parameters: readonly string[];
}

/** A change of such a parameter does not count as a change of an entry. */
const supervisorOnly: ReadonlySet<string> = new Set(
  parameters.filter((parameter) => parameter.supervisorOnly === true).map(({ name }) => name),
);

/** Where the password is looked up if none is given. */
const passwordLookup: ReadonlySet<string> = new Set<keyof ConnectionTarget>(["passwordFile", "othersPasswordFile"]);

export function diffConfigurations(before: Configuration, now: Configuration): ConfigurationChanges {
  const old = new Map(before.entries.map((entry) => [entry.key, entry]));
  const keys = new Set(now.entries.map(({ key }) => key));
  const pairs = now.entries.flatMap((entry) => {
    const previous = old.get(entry.key);
    return previous === undefined ? [] : [{ previous, entry }];
  });
  const moved = pairs.filter(
    ({ previous, entry }) => previous.users !== entry.users || !isDeepStrictEqual(previous.target, entry.target),
  );
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
    ...(before.users === now.users ? [] : ["users"]),
    ...ofManagers,
  ];
}

function changedKeys(before: object, now: object): string[] {
  const [a, b] = [new Map(Object.entries(before)), new Map(Object.entries(now))];
  return [...new Set([...a.keys(), ...b.keys()])].filter((key) => !isDeepStrictEqual(a.get(key), b.get(key)));
}
