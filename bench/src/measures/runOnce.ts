import type { Meter, Subject, Timing } from "../subjects/subject.js";
import type { Work } from "../work.js";
import type { Bench } from "./measure.js";

/**
 * Runs a subject once, in a new database.
 *
 * @throws Error with the names of the subject and of the work in its message
 */
export async function runOnce(bench: Bench, subject: Subject, work: Work, meter?: Meter): Promise<Timing> {
  const database = await bench.databases.make();
  try {
    const tasks = Math.max(1, Math.round(bench.options.tasks * work.share * subject.share));
    return await subject.run({ database, node: bench.node, ...(meter === undefined ? {} : { meter }) }, work, tasks);
  } catch (error) {
    throw new Error(`${subject.name}, ${work.name}: ${String(error)}`, { cause: error });
  } finally {
    await database.drop();
  }
}
