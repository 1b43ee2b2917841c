/** Preloaded with `--import`: the global that an SDK loaded with another API version leaves behind. */
Reflect.set(globalThis, Symbol.for("opentelemetry.js.api.1"), { version: "1.3.0", trace: {} });
