import type { Entry } from "../../shared/config/types.js";
import type { Webhook } from "../../shared/config/webhooks.js";
import type { Log } from "../../shared/log.js";
import type { Client } from "../../shared/postgres/client.js";
import type { WakeSignal } from "../../shared/wakeSignal.js";
import { outboxPauseMs, webhookPauseMs } from "../model/tuning.js";
import type { TaskTable } from "../schema/taskTable.js";
import { webhooksOfTable } from "../schema/webhooks.js";
import { limitOutbox, readDueEnds, writeOutcomes, type End, type WebhookOutcome } from "./outbox.sql.js";
import { tellWebhook, type Failure } from "./webhookRequest.js";

interface Components {
  readonly table: TaskTable;
  readonly entry: Entry;
  readonly wakeSignal: Pick<WakeSignal, "notify">;
  readonly ending: AbortController;
  readonly statistics: { told(name: string, outcome: "accepted" | "failed" | "dropped", ends: number): void };
  readonly log: Log;
}

interface Answer {
  readonly name: string;
  readonly end: End;
  readonly sentAt: number;
  readonly failure: Failure;
}

/**
 * Tells webhooks the ends of tasks that the table's triggers write to the outbox. An end is deleted once its webhook has
 * accepted it. If a webhook fails, its ends wait, and are tried one by one at growing intervals. What the manager sends
 * when it loses the table's lock may be sent by the next one again.
 *
 *   outbox ──look──▶ sent ──answered──▶ answer ──write──▶ deleted, or put off
 */
export class Webhooks {
  readonly #components: Components;
  /** By the id of the end that is under way: the name of its webhook. */
  readonly #sending = new Map<string, string>();
  #answers: Answer[] = [];
  /** How many requests in a row have failed, and when the last of them was counted, by the webhook's name. */
  readonly #failures = new Map<string, { count: number; at: number }>();
  #lookAt = 0;
  #notBefore = 0;
  #limitedAt = -Infinity;

  constructor(components: Components) {
    this.#components = components;
  }

  /** On a new connection: another manager may have served the table in between. */
  restart(): void {
    this.#lookAt = 0;
    this.#failures.clear();
  }

  get isSending(): boolean {
    return this.#sending.size > 0 || this.#answers.length > 0;
  }

  get pauseMs(): number {
    const isUsed = this.#webhooks.length > 0 || this.#answers.length > 0;
    return isUsed ? Math.max(0, this.#lookAt - performance.now()) : Infinity;
  }

  /**
   * Called after each cycle, because in each one, tasks may have ended. Throws if the connection is lost.
   *
   * @param isLast whether the manager ends if there is nothing to send, so that it has to be known at once
   */
  async step(client: Client, isLast: boolean): Promise<void> {
    const webhooks = this.#webhooks;
    if (webhooks.length === 0 && !this.isSending) return;
    const now = performance.now();
    this.#lookAt = this.#notBefore;
    if (now < this.#notBefore && !isLast) return;
    this.#notBefore = now + outboxPauseMs.failed;
    await this.#writeAnswers(client);
    const isWaiting = await this.#look(client, webhooks);
    if (isWaiting && now - this.#limitedAt >= outboxPauseMs.limit) {
      this.#limitedAt = now;
      await this.#limit(client, webhooks);
    }
    this.#notBefore = now + outboxPauseMs.look;
  }

  get #webhooks(): readonly Webhook[] {
    return webhooksOfTable(this.#components.table, this.#components.entry);
  }

  /** Sends what can be sent. Returns whether more has to wait. */
  async #look(client: Client, webhooks: readonly Webhook[]): Promise<boolean> {
    const { table } = this.#components;
    const sending = new Map(webhooks.map(({ name }) => [name, 0]));
    const under = [...this.#sending];
    for (const [, name] of under) sending.set(name, (sending.get(name) ?? 0) + 1);
    const states = await readDueEnds(
      client,
      table,
      sending,
      under.map(([id]) => id),
    );
    const pauses = states.map(({ nextMs }) => nextMs ?? Infinity);
    // What cannot be sent although it is due waits for an answer, which wakes the manager.
    const nextMs = Math.min(Infinity, ...pauses.filter((ms) => ms > 0));
    this.#lookAt = performance.now() + nextMs;
    for (const { name, failures, due } of states) {
      if (!this.#failures.has(name)) this.#failures.set(name, { count: failures, at: -Infinity });
      const webhook = webhooks.find((each) => each.name === name);
      if (webhook !== undefined) for (const end of due) void this.#send(webhook, end);
    }
    return pauses.some((ms) => ms < Infinity);
  }

  async #send(webhook: Webhook, end: End): Promise<void> {
    const { ending, entry, table, wakeSignal } = this.#components;
    const { name } = webhook;
    const sentAt = performance.now();
    this.#sending.set(end.id, name);
    const origin = { database: entry.target.database, table: table.logName };
    const failure = await tellWebhook(webhook, end, origin, ending.signal);
    this.#answers.push({ name, end, sentAt, failure });
    wakeSignal.notify();
  }

  /** An answer stays under way until it is written, so that the end is not sent again meanwhile. */
  async #writeAnswers(client: Client): Promise<void> {
    const answers = [...this.#answers];
    if (answers.length === 0) return;
    const { statistics, table } = this.#components;
    const accepted = answers.filter(({ failure }) => failure === null);
    const failed = answers.flatMap(({ end, failure }) =>
      failure === null ? [] : { id: end.id, pauseMs: pauseAfter(end.tries + 1, failure.askedMs) },
    );
    const names = new Set(answers.map(({ name }) => name));
    const judged = [...names].flatMap((name) => this.#judge(name, answers) ?? []);
    await writeOutcomes(
      client,
      table,
      accepted.map(({ end }) => end.id),
      failed,
      judged,
    );
    this.#answers = this.#answers.slice(answers.length);
    for (const { end, failure, name } of answers) {
      this.#sending.delete(end.id);
      statistics.told(name, failure === null ? "accepted" : "failed", 1);
    }
  }

  /** What has been sent together and fails is one failure. Returns null if nothing is new. */
  #judge(name: string, all: readonly Answer[]): WebhookOutcome | null {
    const { log } = this.#components;
    const answers = all.filter((each) => each.name === name);
    const known = this.#failures.get(name) ?? { count: 0, at: -Infinity };
    const failure = answers.findLast((each) => each.failure !== null)?.failure ?? null;
    if (answers.some((each) => each.failure === null)) {
      this.#failures.set(name, { count: 0, at: -Infinity });
      if (known.count > 0) log.info({ webhook: name, failures: known.count }, "webhook works again");
      if (failure !== null)
        log.debug({ webhook: name, reason: failure.reason }, "webhook has refused one of several ends");
      return known.count === 0 && failure === null
        ? null
        : { name, failures: 0, pauseMs: null, error: failure?.reason ?? null };
    }
    if (failure === null || answers.every(({ sentAt }) => sentAt < known.at)) return null;
    const count = known.count + 1;
    this.#failures.set(name, { count, at: performance.now() });
    const pauseMs = Math.round(pauseAfter(count, failure.askedMs));
    log[known.count === 0 ? "warn" : "debug"](
      { webhook: name, reason: failure.reason, pauseMs },
      "webhook failed, retrying",
    );
    return { name, failures: count, pauseMs, error: failure.reason };
  }

  async #limit(client: Client, webhooks: readonly Webhook[]): Promise<void> {
    const { log, statistics, table } = this.#components;
    const names = webhooks.map(({ name }) => name);
    for (const { name, dropped } of await limitOutbox(client, table, names)) {
      log.warn(
        { webhook: name, dropped },
        "webhook has not accepted ends of tasks for too long, the oldest are dropped",
      );
      statistics.told(name, "dropped", dropped);
    }
  }
}

/** A part is left to chance, so that tables that share a receiver do not try it at the same time. */
function pauseAfter(tries: number, askedMs: number | null): number {
  const longest = Math.min(webhookPauseMs.max, webhookPauseMs.first * 2 ** Math.min(tries - 1, 30));
  return Math.max(askedMs ?? 0, longest * (0.5 + Math.random() / 2));
}
