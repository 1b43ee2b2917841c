/**
 * Every advisory lock pg-task takes, as the first of two int4 keys. The classes are arbitrary
 * numbers of our own ("pgt" in hexadecimal, and a digit), chosen not to meet other software's.
 */
export const lockClasses = {
  /** Second key: hash of the cluster's name; in the control database. The supervisor that leads. */
  supervisor: 0x70677401,
  /** Second key: the table's oid; in its database. The one manager that may claim. */
  manager: 0x70677402,
  /**
   * Second key: hash of schema and table; in its database. Held while the table is made or changed,
   * with that of the schema alone, which its tables share, before it while it is made.
   */
  migration: 0x70677403,
} as const;
