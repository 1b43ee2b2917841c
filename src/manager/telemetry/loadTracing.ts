import { openTelemetryRegistry } from "../../shared/openTelemetryRegistry.js";
import type { Tracing } from "./tracing.js";

export type CreateTracing = typeof Tracing.create;

/** Null without an SDK: the OpenTelemetry API takes 0.8 MB in each thread (decision 29). */
export async function loadTracing(): Promise<CreateTracing | null> {
  if (!(openTelemetryRegistry in globalThis)) return null;
  const { Tracing } = await import("./tracing.js");
  return (...options) => Tracing.create(...options);
}
