// Bundles the code of each kind of thread into one CommonJS file, and that of each command into a few modules, because few
// files load faster than many. docs/decisions/0017 and 0029 say more. Packages are not bundled.
import { chmodSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const common = {
  bundle: true,
  platform: "node",
  target: "node20",
  packages: "external",
  minifyWhitespace: true,
  minifySyntax: true,
  sourcemap: true,
  sourcesContent: false,
  logLevel: "warning",
};

const thread = {
  ...common,
  format: "cjs",
  // Only the manager's bundle replaces import.meta.
  logOverride: { "empty-import-meta": "error" },
};

await build({
  ...thread,
  entryPoints: ["src/executor/host.ts"],
  outfile: "dist/src/executor/host.cjs",
});

// pg tells by `navigator` whether it runs in a Cloudflare Worker. Node.js 20 has none, and pg then makes Node.js load the
// code of `fetch`: 1.6 MB in each thread. Later versions of Node.js have a `navigator` like this one.
const defineNavigator = 'globalThis.navigator ??= { userAgent: "Node.js/" + process.versions.node.split(".")[0] };';

await build({
  ...thread,
  entryPoints: ["src/manager/thread.ts"],
  outfile: "dist/src/manager/thread.cjs",
  define: { "import.meta.url": "bundleUrl" },
  banner: { js: `${defineNavigator} const bundleUrl = require("node:url").pathToFileURL(__filename).href;` },
});

// What a command imports when it is called becomes modules of its own. Their names contain hashes, so those of an earlier
// build would stay.
const chunk = /-[A-Z0-9]{8}\.js(?:\.map)?$/;
for (const name of readdirSync("dist/src/cli")) if (chunk.test(name)) rmSync(`dist/src/cli/${name}`);
await build({
  ...common,
  format: "esm",
  splitting: true,
  entryPoints: ["src/cli/bin.ts"],
  outdir: "dist/src/cli",
  // As deep as src/shared/packageFile.ts expects.
  chunkNames: "[name]-[hash]",
});

chmodSync("dist/src/cli/bin.js", 0o755);

// The page is one script and one style sheet, with the libraries that it uses and their licences.
const page = await build({
  bundle: true,
  minify: true,
  format: "esm",
  platform: "browser",
  target: ["chrome111", "firefox128", "safari16.4"],
  entryPoints: { page: "src/web/page/main.ts", style: "src/web/page/all.css" },
  outdir: "dist/src/web/bundle",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});
const packages = new Set(
  Object.keys(page.metafile.inputs).flatMap((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? []),
);
const licenceOf = (name) => {
  const { version } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
  return `${name}@${version}\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8")}`;
};
writeFileSync("dist/src/web/bundle/LICENSES.txt", [...packages].map(licenceOf).join("\n\n"));
