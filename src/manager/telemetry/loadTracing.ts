import type { Tracing } from "./tracing.js";

export type CreateTracing = typeof Tracing.create;

/** The name under which all copies of @opentelemetry/api share what an SDK has registered. */
const registered = Symbol.for("opentelemetry.js.api.1");

/**
 * Loads the code that creates spans. Without an SDK it is not loaded, because the OpenTelemetry API takes 1.3 MB in each
 * thread.
 *
 * @returns null if no OpenTelemetry SDK is loaded into this thread
 */
export async function loadTracing(): Promise<CreateTracing | null> {
  if (!(registered in globalThis)) return null;
  const { Tracing } = await import("./tracing.js");
  return (...options) => Tracing.create(...options);
}
