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

export function loadedTracer(): Tracer | null {
  const provider = trace.getTracerProvider();
  if (provider instanceof ProxyTracerProvider) {
    return provider.getDelegateTracer(instrumentationName) ?? null;
  }
  return provider.getTracer(instrumentationName);
}

/**
 * A copy of the OpenTelemetry API works only with an SDK whose copy has the same or a later minor version. Returns the
 * version of an SDK's copy that cannot be used.
 */
export function incompatibleApiVersion(): string | null {
  const shared: unknown = Reflect.get(globalThis, openTelemetryRegistry);
  const registered = typeof shared === "object" && shared !== null && "trace" in shared && "version" in shared;
  return registered && loadedTracer() === null ? String(shared.version) : null;
}

export async function flushSpans(): Promise<void> {
  const provider = trace.getTracerProvider();
  const loaded = provider instanceof ProxyTracerProvider ? provider.getDelegate() : provider;
  if (!("forceFlush" in loaded) || typeof loaded.forceFlush !== "function") return;
  await loaded.forceFlush();
}

/** `version-traceid-spanid-flags`. Later versions can append further fields. */
const traceparent = /^(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/**
 * Parses `traceparent` and `tracestate` of a task's `data`. Without a valid trace context, returns the root context.
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

/** Parses the server's times: ISO 8601 in UTC with microseconds. */
export function toSpanTime(iso: string): HrTime {
  const [, whole = "", fraction = ""] = /^(.*?)(?:\.(\d+))?Z$/.exec(iso) ?? [];
  return [Date.parse(`${whole}Z`) / 1000, Number(fraction.padEnd(9, "0").slice(0, 9))];
}
