import {
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type Attributes,
  type Context,
  type SpanContext,
  type SpanOptions,
  type TimeInput,
  type Tracer,
} from "@opentelemetry/api";
import { sleep } from "../../shared/backoff.js";
import { firstLine } from "../../shared/firstLine.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import type { Log } from "../../shared/log.js";
import {
  parseTraceContext,
  flushSpans,
  incompatibleApiVersion,
  loadedTracer,
  toSpanTime,
} from "../../shared/tracing.js";
import type { ClaimedTask, OwnedResult } from "../model/tasks.js";
import type { TaskTable } from "../schema/taskTable.js";

/** How long the SDK may take to send the last spans when the manager ends, in ms. */
const maxFlushMs = 2_000;

/** A claimed task whose result has not been written to its row yet. */
interface TracedRun {
  readonly group: string;
  /** The trace context of the span's parent, read from the column `data`. */
  readonly parent: Context;
  readonly claim: SpanContext;
  /** When the server answered the claim. */
  readonly claimedAt: number;
}

/**
 * Creates the spans of one manager: `claim` and `finish` for its statements, and `run` for each run. The spans are
 * created afterwards, with the times of the claim or of the result. Times are in ms since the epoch.
 */
export class Tracing {
  readonly #tracer: Tracer;
  readonly #log: Log;
  /** Attributes of every span: server, database and table. */
  readonly #attributes: () => Attributes;
  readonly #runs = new Map<string, TracedRun>();

  private constructor(tracer: Tracer, attributes: () => Attributes, log: Log) {
    this.#tracer = tracer;
    this.#attributes = attributes;
    this.#log = log;
  }

  /**
   * Creates the tracing of one manager.
   * @param target returns the server to which the manager is connected.
   * @returns null if no OpenTelemetry SDK is loaded into this thread.
   */
  static create(table: TaskTable, target: () => ConnectionTarget, log: Log): Tracing | null {
    const tracer = loadedTracer();
    const foreign = incompatibleApiVersion();
    if (foreign !== null) {
      const advice = "let pg-task and the SDK share one @opentelemetry/api (npm ls @opentelemetry/api)";
      log.warn({ version: foreign, advice }, "OpenTelemetry SDK is incompatible, runs are not traced");
    }
    if (tracer === null) return null;
    log.info("OpenTelemetry SDK loaded, runs are traced");
    const attributes = (): Attributes => {
      const { host, port, database } = target();
      return {
        "db.system.name": "postgresql",
        "server.address": host,
        "server.port": port,
        "db.namespace": database,
        "pg_task.table": `${table.schema}.${table.table}`,
      };
    };
    return new Tracing(tracer, attributes, log);
  }

  /** The current time, in ms since the epoch. */
  now(): number {
    return performance.timeOrigin + performance.now();
  }

  /** Creates the span of a claim that was sent at `since`, and remembers its tasks. */
  claimed(tasks: readonly ClaimedTask[], since: number): void {
    if (tasks.length === 0) return;
    const claim = this.#statement("claim", tasks.length, since, null);
    const claimedAt = this.now();
    for (const { id, group, data } of tasks) {
      this.#runs.set(id, { group, parent: parseTraceContext(data), claim, claimedAt });
    }
  }

  /** Forgets a task that did not run, so that it gets no span. */
  released(id: string): void {
    this.#runs.delete(id);
  }

  /** Ends the tracing of a lost task. It gets a span only if it was its session's current task (`hasRun`). */
  lost(id: string, hasRun: boolean): void {
    const run = this.#runs.get(id);
    this.#runs.delete(id);
    if (run === undefined || !hasRun) return;
    this.#run(id, run, {
      start: run.claimedAt,
      stop: this.now(),
      error: "the session that ran it was lost",
      state: undefined,
    });
  }

  /**
   * Creates the spans of results that were written.
   *
   * @param written.states the states of the written rows. A row that is missing here was deleted, is locked, or has
   *   another owner.
   * @param since the time at which the statement that wrote the results was sent
   */
  wrote(
    results: readonly OwnedResult[],
    written: {
      readonly states: ReadonlyMap<string, string>;
      readonly lockedIds: ReadonlySet<string>;
    },
    since: number,
  ): void {
    this.#statement("finish", results.length, since, null);
    for (const { id, start, stop, error } of results) {
      const run = this.#runs.get(id);
      if (run === undefined || written.lockedIds.has(id)) continue;
      this.#runs.delete(id);
      this.#run(id, run, {
        start: toSpanTime(start),
        stop: stop === null ? this.now() : toSpanTime(stop),
        error: error === null ? null : firstLine(error),
        state: written.states.get(id),
      });
    }
  }

  /** Creates the span of a failed attempt to write results. The results will be written again. */
  writeFailed(results: readonly OwnedResult[], error: unknown, since: number): void {
    const reason = error instanceof Error ? firstLine(error.message) : String(error);
    this.#statement("finish", results.length, since, reason);
  }

  /** Sends the last spans, within a short time limit because the thread is about to end. */
  async end(): Promise<void> {
    const sent = new AbortController();
    const sending = flushSpans()
      .catch((error: unknown) => this.#log.warn({ err: error }, "last spans not sent"))
      .finally(() => sent.abort());
    await Promise.race([sending, sleep(maxFlushMs, sent.signal)]);
  }

  #statement(name: string, rows: number, since: number, error: string | null): SpanContext {
    const options = { kind: SpanKind.CLIENT, startTime: since, attributes: { "pg_task.rows": rows } };
    return this.#span(name, options, ROOT_CONTEXT, this.now(), error);
  }

  #run(
    id: string,
    { group, parent, claim }: TracedRun,
    run: {
      readonly start: TimeInput;
      readonly stop: TimeInput;
      readonly error: string | null;
      readonly state: string | undefined;
    },
  ): void {
    const { start, stop, error, state } = run;
    const attributes = {
      "pg_task.id": id,
      "pg_task.group": group,
      ...(state === undefined ? {} : { "pg_task.state": state }),
    };
    const options = { kind: SpanKind.CONSUMER, startTime: start, links: [{ context: claim }], attributes };
    this.#span("run", options, parent, stop, error);
  }

  #span(name: string, options: SpanOptions, parent: Context, stop: TimeInput, error: string | null): SpanContext {
    const attributes = { ...this.#attributes(), ...options.attributes };
    const span = this.#tracer.startSpan(name, { ...options, attributes }, parent);
    if (error !== null) span.setStatus({ code: SpanStatusCode.ERROR, message: error });
    span.end(stop);
    return span.spanContext();
  }
}
