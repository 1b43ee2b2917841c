/** SQL of keys in a table with users, where each role has keys of its own. */

/** Between a role and a key, neither of which is likely to contain it. */
const separator = String.raw`E'\x1f'`;

/** SQL of a key together with the role that it belongs to. Null if the row has no key. */
export const ownKey = (alias = ""): string =>
  `CASE WHEN ${alias}key IS NOT NULL THEN concat(${alias}role, ${separator}, ${alias}key) END`;

/** SQL of the key in `ownKey`. */
export const keyIn = (ownKeyText: string): string => `substr(${ownKeyText}, strpos(${ownKeyText}, ${separator}) + 1)`;
