/** The global property under which all copies of @opentelemetry/api share what an SDK has registered. */
export const openTelemetryRegistry = Symbol.for("opentelemetry.js.api.1");
