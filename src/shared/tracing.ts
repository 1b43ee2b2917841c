import {
  createTraceState,
  isSpanContextValid,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  trace,
  type Context,
  type HrTime,
  type Tracer,
} from "@opentelemetry/api";
import { openTelemetryRegistry } from "./openTelemetryRegistry.js";

const instrumentationName = "pg-task";

/** Returns the tracer of the SDK that was loaded into this thread, or null if no SDK was loaded. */
export function loadedTracer(): Tracer | null {
  const provider = trace.getTracerProvider();
  if (provider instanceof ProxyTracerProvider) {
    return provider.getDelegateTracer(instrumentationName) ?? null;
  }
  return provider.getTracer(instrumentationName);
}

/**
 * Checks whether this thread's copy of the OpenTelemetry API can use the loaded SDK. A copy of the API works only with
 * an SDK whose copy has the same or a later minor version.
 *
 * @returns the version of the SDK's copy if it cannot be used; null if it can, or if no SDK is loaded
 */
export function incompatibleApiVersion(): string | null {
  const shared: unknown = Reflect.get(globalThis, openTelemetryRegistry);
  const registered = typeof shared === "object" && shared !== null && "trace" in shared && "version" in shared;
  return registered && loadedTracer() === null ? String(shared.version) : null;
}

/**
 * Sends the collected spans if the SDK supports that.
 *
 * @throws any error that occurs while the spans are sent
 */
export async function flushSpans(): Promise<void> {
  const provider = trace.getTracerProvider();
  const loaded = provider instanceof ProxyTracerProvider ? provider.getDelegate() : provider;
  if (!("forceFlush" in loaded) || typeof loaded.forceFlush !== "function") return;
  await loaded.forceFlush();
}

/** Matches `version-traceid-spanid-flags`. Later versions of the format can append further fields. */
const traceparent = /^(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/**
 * Parses a task's `data` column: a JSON object with a W3C trace context in `traceparent` and `tracestate`. Returns the
 * root context if `data` holds no valid trace context.
 */
export function parseTraceContext(data: string | null): Context {
  const { traceparent: parent, tracestate } = parseFields(data);
  const [, version, traceId = "", spanId = "", flags = "", more] =
    typeof parent === "string" ? (traceparent.exec(parent.trim()) ?? []) : [];
  const context = {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16) & 1,
    isRemote: true,
    ...(typeof tracestate === "string" ? { traceState: createTraceState(tracestate) } : {}),
  };
  if (!isSpanContextValid(context) || (version === "00" && more !== undefined)) return ROOT_CONTEXT;
  return trace.setSpanContext(ROOT_CONTEXT, context);
}

function parseFields(data: string | null): {
  readonly traceparent?: unknown;
  readonly tracestate?: unknown;
} {
  if (data === null) return {};
  try {
    const parsed: unknown = JSON.parse(data);
    return typeof parsed === "object" && parsed !== null ? parsed : {};
  } catch {
    // Users can store any other text in `data`.
    return {};
  }
}

/** Parses an ISO 8601 time in UTC with microseconds, the format in which the server writes times. */
export function toSpanTime(iso: string): HrTime {
  const [, whole = "", fraction = ""] = /^(.*?)(?:\.(\d+))?Z$/.exec(iso) ?? [];
  return [Date.parse(`${whole}Z`) / 1000, Number(fraction.padEnd(9, "0").slice(0, 9))];
}
