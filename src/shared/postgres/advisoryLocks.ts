/**
 * Every advisory lock pg-task takes, as the first of two int4 keys. The classes are arbitrary
 * numbers of our own ("pgt" in hexadecimal, and a digit), chosen not to meet other software's.
 */
export const lockClasses = {
  /** Second key: hash of the cluster's name; in the control database. The supervisor that leads. */
  supervisor: 0x70677401,
  /** Second key: the table's oid; in its database. The one manager that may claim. */
  manager: 0x70677402,
  /** Second key: hash of the schema's name; in its database. Held while a table of it is made or changed. */
  migration: 0x70677403,
  /**
   * Second key: the table's oid; in its database. The manager while it looks again and again without
   * being told; writers test it, and notify when nobody has it.
   */
  busy: 0x70677404,
  /**
   * Second key: random; in its database. The manager, as long as one of its sessions may begin runs that have
   * been sent behind others. Each of these holds a lock of its own as well, whose first key is the pid of its
   * server process (see manager/recalls.ts).
   */
  permit: 0x70677405,
} as const;
