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

// pg tells by `navigator` whether it runs in a Cloudflare Worker. Node.js 20 has none, and pg then makes Node.js load the
// code of `fetch`: 1.6 MB in each thread. Later versions of Node.js have a `navigator` like this one.
const defineNavigator = 'globalThis.navigator ??= { userAgent: "Node.js/" + process.versions.node.split(".")[0] };';

// The modules that use import.meta.url are in folders of src/manager. The bundle behaves as if it were in one too.
await build({
  ...common,
  entryPoints: ["src/manager/thread.ts"],
  outfile: "dist/src/manager/thread.cjs",
  minifyWhitespace: true,
  minifySyntax: true,
  define: { "import.meta.url": "bundleUrl" },
  banner: {
    js: `${defineNavigator} const bundleUrl = require("node:url").pathToFileURL(__dirname + "/bundle/").href;`,
  },
});

await chmod("dist/src/cli/bin.js", 0o755);
