import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { packageFile } from "../../shared/packageFile.js";

export interface Asset {
  readonly body: string;
  readonly type: string;
  readonly etag: string;
}

const script = "text/javascript; charset=utf-8";
const styleSheet = "text/css; charset=utf-8";

const moduleFile = (specifier: string): string => fileURLToPath(import.meta.resolve(specifier));

function fileBeside(from: string, specifier: string, file: string): string {
  return join(dirname(createRequire(from).resolve(specifier)), file);
}

const libraries: Readonly<Record<string, () => string>> = {
  preact: () => moduleFile("preact"),
  "preact/hooks": () => moduleFile("preact/hooks"),
  htm: () => moduleFile("htm"),
  "htm/preact": () => moduleFile("htm/preact"),
  "@preact/signals": () => moduleFile("@preact/signals"),
  "@preact/signals-core": () => fileBeside(moduleFile("@preact/signals"), "@preact/signals-core", "signals-core.mjs"),
  uplot: () => fileBeside(import.meta.url, "uplot", "uPlot.esm.js"),
};

const libraryUrl = (name: string): string => `/lib/${name.replace(/[@/]/g, "-")}.js`;

const importMap = JSON.stringify({
  imports: Object.fromEntries(Object.keys(libraries).map((name) => [name, libraryUrl(name)])),
});

/** For the case that pg-task ends before the modules are loaded. Inline, because it must not have to be loaded. */
const loadFailureScript = `addEventListener("error", ({ target }) => {
  if (!(target instanceof HTMLScriptElement) || document.getElementById("not-loaded") !== null) return;
  const notice = document.createElement("p");
  notice.id = "not-loaded";
  notice.className = "notice bad top";
  notice.setAttribute("role", "alert");
  notice.textContent = "pg-task does not answer, so this page could not be loaded. It keeps trying.";
  document.body.append(notice);
  setInterval(async () => {
    const answer = await fetch("/", { cache: "no-store" }).catch(() => null);
    if (answer !== null && answer.ok) location.reload();
  }, 2000);
}, true);`;

const hashOf = (text: string): string => `sha256-${createHash("sha256").update(text).digest("base64")}`;

/** Browsers accept an import map only if it is inline. */
export const inlineScriptHashes: readonly string[] = [importMap, loadFailureScript].map(hashOf);

export const pageHtml = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>pg-task</title>
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/lib/uplot.css">
<link rel="stylesheet" href="/page/style.css">
<link rel="stylesheet" href="/page/views.css">
<script>${loadFailureScript}</script>
<script type="importmap">${importMap}</script>
<script type="module" src="/page/main.js" blocking="render"></script>
</head>
<body><noscript>This page needs JavaScript.</noscript></body>
</html>
`;

const compiledFolder = fileURLToPath(packageFile("dist/src/web/page"));
const sourceFolder = fileURLToPath(packageFile("src/web/page"));
const sharedFolder = fileURLToPath(packageFile("dist/src/shared"));

/** They must not import modules that are not served. */
const sharedModuleNames = [
  "attemptText.js",
  "firstLine.js",
  "formatDuration.js",
  "formatLateness.js",
  "printable.js",
  "shortRule.js",
  "taskColumns.js",
  "taskState.js",
  "tryErrors.js",
] as const;

/** The keys are URL paths. */
export function readAssets(): ReadonlyMap<string, Asset> {
  const pageModules = readdirSync(compiledFolder)
    .filter((name) => name.endsWith(".js"))
    .map((name) => [`/page/${name}`, join(compiledFolder, name), script] as const);
  const sharedModules = sharedModuleNames.map((name) => [`/shared/${name}`, join(sharedFolder, name), script] as const);
  const styles = [
    ["/page/style.css", join(sourceFolder, "style.css"), styleSheet],
    ["/page/views.css", join(sourceFolder, "views.css"), styleSheet],
    ["/page/icon.svg", join(sourceFolder, "icon.svg"), "image/svg+xml"],
    ["/lib/uplot.css", fileBeside(import.meta.url, "uplot", "uPlot.min.css"), styleSheet],
  ] as const;
  const libraryModules = Object.entries(libraries).map(([name, file]) => [libraryUrl(name), file(), script] as const);
  return new Map(
    [...pageModules, ...sharedModules, ...styles, ...libraryModules].map(([path, file, type]) => [
      path,
      readAsset(file, type),
    ]),
  );
}

function readAsset(file: string, type: string): Asset {
  const body = readFileSync(file, "utf8").replace(/\n\/\/# sourceMappingURL=.*\s*$/, "\n");
  const etag = `"${createHash("sha256").update(body).digest("base64url").slice(0, 16)}"`;
  return { body, type, etag };
}
