import { openTelemetryRegistry } from "../../shared/openTelemetryRegistry.js";
import type { Tracing } from "./tracing.js";

export type CreateTracing = typeof Tracing.create;

/**
 * Loads the code that creates spans. Without an SDK it is not loaded, because the OpenTelemetry API takes 0.8 MB in each
 * thread (decision 29).
 *
 * @returns null if no OpenTelemetry SDK is loaded into this thread
 */
export async function loadTracing(): Promise<CreateTracing | null> {
  if (!(openTelemetryRegistry in globalThis)) return null;
  const { Tracing } = await import("./tracing.js");
  return (...options) => Tracing.create(...options);
}
