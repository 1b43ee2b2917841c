import { sqlState } from "../shared/database.js";
import { toReport } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import type { Group, Head } from "./groups.js";
import type { DueTask } from "./sql/claim.js";

/** What a trigger or a check of the user's may say of a row: data, constraints, routines, PL/pgSQL. */
const ofARow = /^(?:22|23|27|2F|38|39|44|P0)/;
/** How many claims of a single task follow a refusal before more are claimed at once. */
const carefulClaims = 50;
/** Pauses before a task that was refused is tried again, in ms. */
const pauseMs = { first: 1_000, longest: 60_000 };
/** With more refused tasks it is the table that refuses. */
const mostRefused = 200;

interface Refused {
  until: number;
  pauseMs: number;
}

/**
 * Tasks whose start the server refuses, by a trigger of the user's on that row. After a claim was
 * refused, tasks are claimed one by one, so that it shows which one it was; that one is left out for a
 * while, and the others run.
 */
export class Refusals {
  readonly #log: Log;
  readonly #refused = new Map<string, Refused>();
  #carefulClaims = 0;

  constructor(log: Log) {
    this.#log = log;
  }

  /** Whether only one task is to be claimed at a time. */
  get careful(): boolean {
    return this.#carefulClaims > 0;
  }

  /** Which tasks are not to be claimed now. */
  get ids(): string[] {
    const now = performance.now();
    return [...this.#refused].flatMap(([id, { until }]) => (until > now ? id : []));
  }

  /** A claim succeeded with these. */
  passed(claimed: readonly { readonly id: string }[]): void {
    if (this.#carefulClaims > 0) this.#carefulClaims -= 1;
    for (const { id } of claimed) this.#refused.delete(id);
  }

  /**
   * A claim failed that would have begun at these heads.
   *
   * @returns what it was refused for; null when that is not for a row to answer.
   */
  take(
    error: unknown,
    chosen: readonly { readonly group: Group; readonly head: Head | null }[],
  ): DueTask[] | null {
    if (!ofARow.test(sqlState(error) ?? "") || this.#refused.size >= mostRefused) return null;
    const heads = chosen.flatMap(({ group, head }) =>
      head === null ? [] : { id: String(head.id), hash: group.hash, max: head.max },
    );
    if (heads.length === 0) return null;
    if (this.careful) for (const { id } of heads) this.#refuse(id, error);
    this.#carefulClaims = carefulClaims;
    return heads;
  }

  #refuse(id: string, error: unknown): void {
    const before = this.#refused.get(id);
    const pause = Math.min(2 * (before?.pauseMs ?? pauseMs.first / 2), pauseMs.longest);
    this.#refused.set(id, { until: performance.now() + pause, pauseMs: pause });
    if (before !== undefined) return;
    const reason = toReport(error).message;
    this.#log.error({ id, reason }, "start refused by the server, it is tried again");
  }
}
