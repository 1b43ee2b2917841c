import {
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type Attributes,
  type Context,
  type SpanContext,
  type TimeInput,
  type Tracer,
} from "@opentelemetry/api";
import { sleep } from "../../shared/backoff.js";
import type { ConnectionTarget } from "../../shared/config/types.js";
import type { Log } from "../../shared/log.js";
import {
  contextOf,
  flushSpans,
  foreignApiVersion,
  loadedTracer,
  spanTime,
} from "../../shared/tracing.js";
import type { ClaimedTask } from "../claim/claimedTask.sql.js";
import type { OwnedResult } from "../results/completeFull.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/** How long the SDK may take to send its last spans when the manager ends, in ms. */
const lastSpansMs = 2_000;

/** A task that was claimed, until its result is in its row. */
interface TracedRun {
  readonly group: string;
  readonly parent: Context;
  readonly claim: SpanContext;
  readonly claimed: number;
}

/**
 * The spans of one manager: `claim` and `finish` for its statements, `run` for each run. Made here,
 * where claims and results are known, with the times that they had.
 */
export class Tracing {
  readonly #tracer: Tracer;
  readonly #log: Log;
  readonly #place: Attributes;
  readonly #runs = new Map<string, TracedRun>();

  private constructor(tracer: Tracer, place: Attributes, log: Log) {
    this.#tracer = tracer;
    this.#place = place;
    this.#log = log;
  }

  /** Null unless an SDK is loaded into this thread. */
  static begin(table: TaskTable, target: ConnectionTarget, log: Log): Tracing | null {
    const tracer = loadedTracer();
    const foreign = foreignApiVersion();
    if (foreign !== null) {
      const advice =
        "let pg-task and the SDK share one @opentelemetry/api (npm ls @opentelemetry/api)";
      log.warn({ version: foreign, advice }, "an OpenTelemetry SDK is loaded that cannot be used");
    }
    if (tracer === null) return null;
    log.info("an OpenTelemetry SDK is loaded, runs are traced");
    const place = {
      "db.system.name": "postgresql",
      "server.address": target.host,
      "server.port": target.port,
      "db.namespace": target.database,
      "pg_task.table": `${table.schema}.${table.table}`,
    };
    return new Tracing(tracer, place, log);
  }

  /** Now, as spans have it. */
  now(): number {
    return performance.timeOrigin + performance.now();
  }

  /** These were claimed by a statement that was sent at `since`. */
  claimed(tasks: readonly ClaimedTask[], since: number): void {
    if (tasks.length === 0) return;
    const claim = this.#statement("claim", tasks.length, since, null);
    const claimed = this.now();
    for (const { id, group, data } of tasks) {
      this.#runs.set(id, { group, parent: contextOf(data), claim, claimed });
    }
  }

  /** It comes to nothing: the task did not run, and waits again. */
  returned(id: string): void {
    this.#runs.delete(id);
  }

  /** Its session is gone. */
  lost(id: string, ran: boolean): void {
    const run = this.#runs.get(id);
    this.#runs.delete(id);
    if (run === undefined || !ran) return;
    this.#run(id, run, {
      start: run.claimed,
      stop: this.now(),
      problem: "the session that ran it was lost",
      state: undefined,
    });
  }

  /**
   * These results were written by a statement that was sent at `since`.
   *
   * @param written.states of the rows that were written; those of other results are gone, or have
   * another owner, or are among the `later` ones.
   */
  wrote(
    results: readonly OwnedResult[],
    written: { readonly states: ReadonlyMap<string, string>; readonly later: ReadonlySet<string> },
    since: number,
  ): void {
    this.#statement("finish", results.length, since, null);
    for (const { id, start, stop, error } of results) {
      const run = this.#runs.get(id);
      if (run === undefined || written.later.has(id)) continue;
      this.#runs.delete(id);
      this.#run(id, run, {
        start: spanTime(start),
        stop: stop === null ? this.now() : spanTime(stop),
        problem: error === null ? null : firstLine(error),
        state: written.states.get(id),
      });
    }
  }

  /** They could not be written: it is tried again. */
  notWritten(results: readonly OwnedResult[], problem: unknown, since: number): void {
    const reason = problem instanceof Error ? firstLine(problem.message) : String(problem);
    this.#statement("finish", results.length, since, reason);
  }

  /** Has the last spans sent, as far as that goes quickly: the thread is about to end. */
  async end(): Promise<void> {
    const sent = new AbortController();
    const sending = flushSpans()
      .catch((error: unknown) => this.#log.warn({ err: error }, "last spans were not sent"))
      .finally(() => sent.abort());
    await Promise.race([sending, sleep(lastSpansMs, sent.signal)]);
  }

  #statement(name: string, rows: number, since: number, problem: string | null): SpanContext {
    const span = this.#tracer.startSpan(
      name,
      {
        kind: SpanKind.CLIENT,
        startTime: since,
        attributes: { ...this.#place, "pg_task.rows": rows },
      },
      ROOT_CONTEXT,
    );
    if (problem !== null) span.setStatus({ code: SpanStatusCode.ERROR, message: problem });
    span.end(this.now());
    return span.spanContext();
  }

  #run(
    id: string,
    { group, parent, claim }: TracedRun,
    run: {
      readonly start: TimeInput;
      readonly stop: TimeInput;
      readonly problem: string | null;
      readonly state: string | undefined;
    },
  ): void {
    const { start, stop, problem, state } = run;
    const span = this.#tracer.startSpan(
      "run",
      {
        kind: SpanKind.CONSUMER,
        startTime: start,
        links: [{ context: claim }],
        attributes: {
          ...this.#place,
          "pg_task.id": id,
          "pg_task.group": group,
          ...(state === undefined ? {} : { "pg_task.state": state }),
        },
      },
      parent,
    );
    if (problem !== null) span.setStatus({ code: SpanStatusCode.ERROR, message: problem });
    span.end(stop);
  }
}

const firstLine = (text: string): string => text.split("\n", 1)[0] ?? "";
