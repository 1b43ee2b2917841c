/**
 * Preloaded with `--import`. Sets the global variable that an SDK leaves behind if it has loaded another version of the
 * API.
 */
Reflect.set(globalThis, Symbol.for("opentelemetry.js.api.1"), { version: "1.3.0", trace: {} });
