// Bundles the code of each kind of thread into one CommonJS file, and makes the command executable. docs/decisions/0017
// and 0029 say why. Packages are not bundled.
import { chmod } from "node:fs/promises";
import { build } from "esbuild";

const common = {
  bundle: true,
  platform: "node",
  target: "node20",
  format: "cjs",
  packages: "external",
  sourcemap: true,
  sourcesContent: false,
  logLevel: "warning",
  // Only the manager's bundle replaces import.meta.
  logOverride: { "empty-import-meta": "error" },
};

await build({
  ...common,
  entryPoints: ["src/executor/host.ts"],
  outfile: "dist/src/executor/host.cjs",
});

// The modules that use import.meta.url are in folders of src/manager, and so is the bundle.
await build({
  ...common,
  entryPoints: ["src/manager/thread.ts"],
  outfile: "dist/src/manager/bundle/thread.cjs",
  minifyWhitespace: true,
  minifySyntax: true,
  define: { "import.meta.url": "bundleUrl" },
  banner: { js: 'const bundleUrl = require("node:url").pathToFileURL(__filename).href;' },
});

await chmod("dist/src/cli/bin.js", 0o755);
