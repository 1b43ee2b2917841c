import type { Client } from "../../shared/postgres/client.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { RejectedRows, changeRows } from "../sql/rejectedRows.js";
import type { CompleterComponents } from "./completer.js";
import type { ReleasedTask } from "./pendingResults.js";
import { releaseTasks } from "./releaseTasks.sql.js";

type TaskReleaserComponents = Pick<
  CompleterComponents,
  "table" | "groupScanner" | "pendingResults" | "tracing" | "log"
>;

export class TaskReleaser {
  readonly #components: TaskReleaserComponents;
  readonly #rejected: RejectedRows;

  constructor(components: TaskReleaserComponents) {
    this.#components = components;
    this.#rejected = new RejectedRows(components.log);
  }

  async release(client: Client, tasks: readonly ReleasedTask[]): Promise<void> {
    const { released } = this.#components.pendingResults;
    const unwritten = new Set(tasks);
    try {
      const untried = await changeRows(
        client,
        tasks,
        async (some) => {
          await this.#releaseTogether(client, some);
          for (const task of some) unwritten.delete(task);
        },
        (task, error) => {
          const message = "release rejected by the server, retrying";
          const until = this.#rejected.add(task.id, error, message);
          released.defer([task], until, !isTransient(error));
          unwritten.delete(task);
        },
      );
      released.requeueLast(untried);
    } catch (error) {
      released.defer([...unwritten]);
      throw error;
    }
  }

  async #releaseTogether(client: Client, tasks: readonly ReleasedTask[]): Promise<void> {
    const { groupScanner, pendingResults, table, tracing } = this.#components;
    const locked = await releaseTasks(client, table, tasks);
    pendingResults.released.defer(tasks.filter(({ id }) => locked.has(id)));
    for (const { id, due } of tasks) {
      this.#rejected.delete(id);
      if (locked.has(id)) continue;
      tracing?.released(id);
      if (due === undefined) groupScanner.markChanged();
      else groupScanner.addDue({ id, ...due });
    }
  }
}
