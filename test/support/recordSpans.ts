import { appendFileSync } from "node:fs";
import {
  isSpanContextValid,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Context,
  type HrTime,
  type Link,
  type Span,
  type SpanContext,
  type SpanOptions,
  type SpanStatus,
  type TimeInput,
  type TracerProvider,
} from "@opentelemetry/api";

/**
 * A small tracing SDK, preloaded with `--import`. It buffers spans until it is flushed, and then appends each of them
 * as a line of JSON to the file that SPANS_FILE names.
 */
export interface RecordedSpan {
  readonly name: string;
  readonly kind: number;
  readonly traceId: string;
  readonly spanId: string;
  readonly parent: string | null;
  readonly state: string | null;
  readonly links: readonly string[];
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly status: SpanStatus;
  /** Nanoseconds since 1970, as text. */
  readonly start: string;
  readonly end: string;
}

const random = (length: number): string =>
  Array.from({ length }, () => Math.trunc(Math.random() * 16).toString(16)).join("");

const file = process.env["SPANS_FILE"];
if (file !== undefined) {
  let ended: RecordedSpan[] = [];
  const begin = (name: string, options: SpanOptions = {}, context?: Context): Span => {
    const parent = context === undefined ? undefined : trace.getSpanContext(context);
    const own: SpanContext = {
      traceId: parent !== undefined && isSpanContextValid(parent) ? parent.traceId : random(32),
      spanId: random(16),
      traceFlags: TraceFlags.SAMPLED,
    };
    let status: SpanStatus = { code: SpanStatusCode.UNSET };
    const span: Span = {
      spanContext: () => own,
      setAttribute: () => span,
      setAttributes: () => span,
      addEvent: () => span,
      addLink: () => span,
      addLinks: () => span,
      setStatus: (given) => {
        status = given;
        return span;
      },
      updateName: () => span,
      end: (endTime) => {
        ended.push({
          name,
          kind: options.kind ?? 0,
          traceId: own.traceId,
          spanId: own.spanId,
          parent: parent?.spanId ?? null,
          state: parent?.traceState?.serialize() ?? null,
          links: (options.links ?? []).map((link: Link) => link.context.spanId),
          attributes: { ...options.attributes },
          status,
          start: nanoseconds(options.startTime),
          end: nanoseconds(endTime),
        });
      },
      isRecording: () => true,
      recordException: () => {},
    };
    return span;
  };

  const provider: TracerProvider & { forceFlush(): Promise<void> } = {
    getTracer: () => ({
      startSpan: begin,
      startActiveSpan: () => {
        throw new Error("active spans are not supported");
      },
    }),
    forceFlush: async () => {
      for (const span of ended) appendFileSync(file, `${JSON.stringify(span)}\n`);
      ended = [];
    },
  };
  trace.setGlobalTracerProvider(provider);
}

function nanoseconds(time: TimeInput | undefined): string {
  if (typeof time === "number") return String(BigInt(Math.round(time * 1000)) * 1000n);
  if (!Array.isArray(time)) throw new Error(`expected a time, got ${String(time)}`);
  const [seconds, rest]: HrTime = time;
  return String(BigInt(seconds) * 1_000_000_000n + BigInt(rest));
}
