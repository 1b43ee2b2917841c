import { linesOf } from "./cli.js";

/** The key, the mapping and the text of each job that `pg-task import` prints. */
export const importedJobs = (stdout: string): string[][] =>
  linesOf(stdout).map((line) => line.split("\t").filter((_, index) => index !== 2));

/** The same as lines, without what says that a job was added to the table `task` of the database. */
export const importLines = (stdout: string, database: string): string[] =>
  importedJobs(stdout).map((job) =>
    job.join(": ").replace(new RegExp(`[;:] added in public\\.task of ${database}`), ""),
  );
