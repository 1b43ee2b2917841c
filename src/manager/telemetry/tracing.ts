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

/** For the last spans, because the thread is about to end. */
const maxFlushMs = 2_000;

export type CreateTracing = typeof Tracing.create;

interface TracedRun {
  readonly group: string;
  readonly parent: Context;
  readonly claim: SpanContext;
  readonly claimedAt: number;
}

/**
 * Creates the spans of one manager, afterwards: `claim` and `finish` for its statements, and `run` for each run. Times
 * are in ms since the epoch.
 */
export class Tracing {
  readonly #tracer: Tracer;
  readonly #log: Log;
  readonly #attributes: () => Attributes;
  readonly #runs = new Map<string, TracedRun>();

  private constructor(tracer: Tracer, attributes: () => Attributes, log: Log) {
    this.#tracer = tracer;
    this.#attributes = attributes;
    this.#log = log;
  }

  /**
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

  now(): number {
    return performance.timeOrigin + performance.now();
  }

  claimed(tasks: readonly ClaimedTask[], since: number): void {
    if (tasks.length === 0) return;
    const claim = this.#statement("claim", tasks.length, since, null);
    const claimedAt = this.now();
    for (const { id, group, data } of tasks) {
      this.#runs.set(id, { group, parent: parseTraceContext(data), claim, claimedAt });
    }
  }

  released(id: string): void {
    this.#runs.delete(id);
  }

  /** A lost task gets a span only if it was its session's current one. */
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

  /** @param written.states lacks rows that were deleted, are locked, or have another owner. */
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

  writeFailed(results: readonly OwnedResult[], error: unknown, since: number): void {
    const reason = error instanceof Error ? firstLine(error.message) : String(error);
    this.#statement("finish", results.length, since, reason);
  }

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
