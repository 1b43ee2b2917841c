import type { Database } from "../database.js";
import type { Work } from "../work.js";

export interface Surroundings {
  readonly database: Database;
  /** Path of the Node that runs all subjects written for it. */
  readonly node: string;
  /** Told when what is measured begins and ends. */
  readonly meter?: Meter;
}

export interface Meter {
  begin(pid: number, database: Database): Promise<void>;
  end(): Promise<void>;
}

export interface Timing {
  /** How many tasks were done in the time. */
  readonly tasks: number;
  /** From the commit of the tasks until all of them are seen as done. */
  readonly ms: number;
}

/** Something that runs tasks, in one of its settings. */
export interface Subject {
  readonly name: string;
  readonly title: string;
  /** Part of the usual number of tasks that is enough, as it is slow. */
  readonly share: number;
  /** What has to be there for it to run. */
  readonly needs: "nothing" | "peers" | "pgbench";
  does(work: Work): boolean;
  /** @throws Error when a task was not done, or done twice. */
  run(surroundings: Surroundings, work: Work, tasks: number): Promise<Timing>;
}
