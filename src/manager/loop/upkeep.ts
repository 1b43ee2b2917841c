import type { Client } from "../../shared/postgres/client.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { ManagerComponents } from "./components.js";

/** What a manager does after each cycle besides running tasks, one step of each at a time. */
export class Upkeep {
  readonly #components: ManagerComponents;

  constructor(components: ManagerComponents) {
    this.#components = components;
  }

  /** @param isSettled whether a manager that fell asleep has left nothing to do */
  restart(isSettled: boolean): void {
    const { clockSteps, dependencies, owed, pruner, turns, webhooks } = this.#components;
    webhooks.restart();
    if (isSettled) for (const each of [clockSteps, dependencies, owed, pruner, turns]) each.settle();
    else for (const each of [clockSteps, dependencies, owed, turns]) each.restart();
  }

  get pauseMs(): number {
    const { clockSteps, dependencies, owed, pruner, webhooks, zoneChanges } = this.#components;
    return Math.max(
      1,
      Math.min(...[clockSteps, dependencies, owed, pruner, webhooks, zoneChanges].map(({ pauseMs }) => pauseMs)),
    );
  }

  /**
   * Returns whether more steps should follow at once, and whether tasks may have been planned.
   *
   * @param isLast whether the manager ends if there is nothing more to do
   */
  async step(client: Client, isLast: boolean): Promise<{ readonly again: boolean; readonly mayHavePlanned: boolean }> {
    const { clockSteps, knownSettings, ledgers, owed, pruner, webhooks, zoneChanges } = this.#components;
    await ledgers.rotate(client);
    const canPruneMore = await falseIfTransient(() => pruner.step(client, knownSettings.batch));
    const replans = Math.min(clockSteps.pauseMs, zoneChanges.pauseMs) === 0;
    const canReplanMore =
      replans &&
      (await falseIfTransient(async () => (await clockSteps.step(client)) || (await zoneChanges.step(client))));
    const plansOwed = owed.pauseMs === 0;
    const canPlanMore = plansOwed && (await falseIfTransient(() => owed.step(client)));
    const haveDependentsChanged = await this.stepDependencies(client);
    await falseIfTransient(async () => {
      await webhooks.step(client, isLast);
      return false;
    });
    return {
      again: canPruneMore || canReplanMore || canPlanMore || haveDependentsChanged,
      mayHavePlanned: replans || plansOwed,
    };
  }

  /** Looks up predecessors and releases dependents. Returns whether there is more to do right away. */
  async stepDependencies(client: Client): Promise<boolean> {
    const { dependencies, pruner } = this.#components;
    const haveChanged = await falseIfTransient(() => dependencies.step(client));
    // Rows whose end others had to be told may be pruned now.
    if (haveChanged) pruner.touch();
    return haveChanged;
  }
}

/** Returns false if the step meets a transient error, such as a lock on the table. */
export async function falseIfTransient(step: () => Promise<boolean>): Promise<boolean> {
  try {
    return await step();
  } catch (error) {
    if (isTransient(error)) return false;
    throw error;
  }
}
