import { beforeEach } from "node:test";
import { commandsOn, linesOf } from "./cli.js";
import { serve } from "./serve.js";

/** The key, the mapping and the text of each job that `pg-task import` prints. */
export const importedJobs = (stdout: string): string[][] =>
  linesOf(stdout).map((line) => line.split("\t").filter((_, index) => index !== 2));

/**
 * A database with the tables of another scheduler, whose task table is served, and in which no task starts. Must be called
 * at the top level of a test file.
 *
 * @param tables SQL that creates its tables
 * @param jobs those of them that are emptied before each test
 */
export async function importing(source: string, tables: string, jobs: string) {
  const { database, client, tasks } = await serve({}, `${tables}; INSERT INTO task_pause DEFAULT VALUES`);
  const { database: db, user } = database.target;
  const { run } = commandsOn(database);
  beforeEach(() => client.query(`TRUNCATE task RESTART IDENTITY; TRUNCATE ${jobs} RESTART IDENTITY CASCADE`));
  return {
    client,
    tasks,
    run,
    db,
    user,
    /** Imports, and returns lines without what says that a job was added to the table `task` of the database. */
    lines: async (...options: string[]): Promise<string[]> =>
      importedJobs((await run("import", source, ...options)).stdout).map((job) =>
        job.join(": ").replace(new RegExp(`[;:] added in public\\.task of ${db}`), ""),
      ),
    rows: (list: string) => tasks.rows<Record<string, unknown>>(`SELECT ${list} FROM task ORDER BY id`),
  };
}
