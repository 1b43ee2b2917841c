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

const instrumentation = "pg-task";

/** The tracer of the SDK that was loaded into this thread, null without one. */
export function loadedTracer(): Tracer | null {
  const provider = trace.getTracerProvider();
  if (provider instanceof ProxyTracerProvider) {
    return provider.getDelegateTracer(instrumentation) ?? null;
  }
  return provider.getTracer(instrumentation);
}

/**
 * Version of the API that an SDK was loaded with which this thread's own API cannot use, null when
 * there is none: the API is compatible with copies of its own or a later minor version only.
 */
export function foreignApiVersion(): string | null {
  const shared: unknown = Reflect.get(globalThis, Symbol.for("opentelemetry.js.api.1"));
  const registered =
    typeof shared === "object" && shared !== null && "trace" in shared && "version" in shared;
  return registered && loadedTracer() === null ? String(shared.version) : null;
}

/** Has the SDK send what it has gathered, if it is one that can be told so; rejects when it cannot send. */
export async function flushSpans(): Promise<void> {
  const provider = trace.getTracerProvider();
  const loaded = provider instanceof ProxyTracerProvider ? provider.getDelegate() : provider;
  if (!("forceFlush" in loaded) || typeof loaded.forceFlush !== "function") return;
  await loaded.forceFlush();
}

/** `version-traceid-spanid-flags`; later versions may have more behind it. */
const traceparent = /^(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/**
 * The context that a task's `data` names: W3C trace context in the keys `traceparent` and `tracestate`
 * of a JSON object. A root context when there is none, or a wrong one.
 */
export function contextOf(data: string | null): Context {
  const { traceparent: parent, tracestate } = fieldsOf(data);
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

function fieldsOf(data: string | null): {
  readonly traceparent?: unknown;
  readonly tracestate?: unknown;
} {
  if (data === null) return {};
  try {
    const parsed: unknown = JSON.parse(data);
    return typeof parsed === "object" && parsed !== null ? parsed : {};
  } catch {
    // Whatever else users keep there.
    return {};
  }
}

/** Time of an ISO 8601 text in UTC with microseconds, as the database writes it. */
export function spanTime(iso: string): HrTime {
  const [, whole = "", fraction = ""] = /^(.*?)(?:\.(\d+))?Z$/.exec(iso) ?? [];
  return [Date.parse(`${whole}Z`) / 1000, Number(fraction.padEnd(9, "0").slice(0, 9))];
}
