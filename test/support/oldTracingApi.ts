/** Preloaded with `--import`: what an SDK leaves behind that was loaded with an API of another version. */
Reflect.set(globalThis, Symbol.for("opentelemetry.js.api.1"), { version: "1.3.0", trace: {} });
