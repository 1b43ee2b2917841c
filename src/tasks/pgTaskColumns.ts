/** The columns of pg-task that a new task can set. */
export const optionNames: ReadonlySet<string> = new Set([
  ..."input args plan group max active timeout repeat rule zone catchup overlap drift key after upon retry".split(" "),
  ..."backoff sqlstate gap keep delete count live save atomic header string delimiter escape quote null".split(" "),
  ..."data remote parent".split(" "),
]);

/** Columns that pg-task sets by itself. */
const internal = new Set([
  ..."id take start stop hash pid crash state ready error output owner attempt errors role created due".split(" "),
  ..."wait plain".split(" "),
]);

/** Whether this is the name of a column of pg-task. */
export const isPgTaskColumn = (name: string): boolean => optionNames.has(name) || internal.has(name);
