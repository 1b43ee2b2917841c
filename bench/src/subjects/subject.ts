import type { Database } from "../database.js";
import type { Work } from "../work.js";

export interface Surroundings {
  readonly database: Database;
  /** Path of the Node that runs the subjects written for Node. */
  readonly node: string;
  /** Notified when the measured part begins and ends. */
  readonly meter?: Meter;
}

export interface Meter {
  begin(pid: number, database: Database): Promise<void>;
  end(): Promise<void>;
}

export interface Timing {
  /** Number of measured tasks. */
  readonly tasks: number;
  /** Time from the commit of the tasks until all are seen as done. */
  readonly ms: number;
}

/** A program that runs tasks, with one set of settings. */
export interface Subject {
  readonly name: string;
  readonly title: string;
  /** The fraction of the usual number of tasks to run. Less than 1 for slow subjects. */
  readonly share: number;
  /** What must be installed to run this subject. */
  readonly needs: "nothing" | "peers" | "pgbench";
  does(work: Work): boolean;
  /** @throws Error if a task was not done, or done twice */
  run(surroundings: Surroundings, work: Work, tasks: number): Promise<Timing>;
}
