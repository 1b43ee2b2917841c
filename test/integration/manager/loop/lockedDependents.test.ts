import assert from "node:assert/strict";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { lockRow } from "../../../support/gates.js";
import { test } from "../../../support/limitedTest.js";
import { startManagerLoop, withoutPruning } from "../../../support/managerLoop.js";
import { openTable } from "../../../support/taskTables.js";
import { only, waitForRow } from "../../../support/tasks.js";

const { database, user, manager } = await openTable();

/** Counts the statements with names that begin like this, and measures the time between them. */
class Heard {
  readonly client: Client;
  #count = 0;
  #watcher: (() => void) | null = null;
  #sentAt = 0;
  /** Time from sending the last but one of the statements to sending the last one, in ms. */
  pauseMs = 0;

  constructor(client: Client, name: string) {
    const send: unknown = Reflect.get(client, "query");
    assert.ok(typeof send === "function");
    const query = async (statement: { readonly name?: string }, ...more: unknown[]): Promise<unknown> => {
      const isCounted = statement.name?.startsWith(name) === true;
      if (isCounted) {
        this.pauseMs = performance.now() - this.#sentAt;
        this.#sentAt = performance.now();
      }
      const result: unknown = await Reflect.apply(send, client, [statement, ...more]);
      if (isCounted) this.#hear();
      return result;
    };
    this.client = new Proxy(client, {
      get(target, property) {
        if (property === "query") return query;
        const value: unknown = Reflect.get(target, property);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }

  /** Resolves when the statement has been executed `count` times more. */
  async times(count: number): Promise<void> {
    const wanted = this.#count + count;
    while (this.#count < wanted) await new Promise<void>((resolve) => (this.#watcher = resolve));
  }

  #hear(): void {
    this.#count += 1;
    this.#watcher?.();
  }
}

async function insert(input: string, after: string | null): Promise<string> {
  const { rows } = await user.query<{ id: string }>(
    "INSERT INTO task (input, plan, after) VALUES ($1, 'infinity', $2) RETURNING id",
    [input, after],
  );
  return only(rows).id;
}

test("in deep sleep, a task whose row is locked is released soon after the end of the lock", async () => {
  const heard = new Heard(manager, "release dependents");
  const loop = await startManagerLoop(heard.client, database.target, { components: withoutPruning });
  const first = await insert("SELECT 1", null);
  const second = await insert("SELECT 2", `{${first}}`);
  await waitForRow(user, "SELECT FROM task WHERE id = $1 AND wait = 0", [second]);
  const unlock = await lockRow(database, second);
  await user.query("UPDATE task SET state = 'STOP' WHERE id = $1", [first]);
  // Only the first of these attempts follows the notification of the change.
  await heard.times(2);
  // It did not poll.
  assert.ok(heard.pauseMs > 100);
  await unlock();
  await waitForRow(user, "SELECT FROM task WHERE id = $1 AND state = 'GONE'", [second]);
  await loop.stop();
});

test("in deep sleep, predecessors whose rows are locked are looked up soon after the end of the lock", async () => {
  await user.query("TRUNCATE task, task_after");
  const heard = new Heard(manager, "look up predecessors");
  const loop = await startManagerLoop(heard.client, database.target, { components: withoutPruning });
  const first = await insert("SELECT 1", null);
  const unlock = await lockRow(database, first);
  const second = await insert("SELECT 2", `{${first}}`);
  await heard.times(2);
  assert.ok(heard.pauseMs > 100);
  await unlock();
  await waitForRow(user, "SELECT FROM task WHERE id = $1 AND wait = 0", [second]);
  await loop.stop();
});
