import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export interface Asset {
  readonly body: string;
  readonly type: string;
  readonly etag: string;
}

const script = "text/javascript; charset=utf-8";
const style = "text/css; charset=utf-8";

const moduleFile = (specifier: string): string => fileURLToPath(import.meta.resolve(specifier));

/** A file beside what another package's own requires finds. */
function beside(from: string, specifier: string, file: string): string {
  return join(dirname(createRequire(from).resolve(specifier)), file);
}

/** What the page imports by name, and where it is installed. */
const libraries: Readonly<Record<string, () => string>> = {
  preact: () => moduleFile("preact"),
  "preact/hooks": () => moduleFile("preact/hooks"),
  htm: () => moduleFile("htm"),
  "htm/preact": () => moduleFile("htm/preact"),
  "@preact/signals": () => moduleFile("@preact/signals"),
  "@preact/signals-core": () =>
    beside(moduleFile("@preact/signals"), "@preact/signals-core", "signals-core.mjs"),
  uplot: () => beside(import.meta.url, "uplot", "uPlot.esm.js"),
};

const libraryUrl = (name: string): string => `/lib/${name.replace(/[@/]/g, "-")}.js`;

const importMap = JSON.stringify({
  imports: Object.fromEntries(Object.keys(libraries).map((name) => [name, libraryUrl(name)])),
});

/** Allows the import map, which browsers take inline only. */
export const importMapHash = `sha256-${createHash("sha256").update(importMap).digest("base64")}`;

/** The page; the same for every path of it. */
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
<script type="importmap">${importMap}</script>
<script type="module" src="/page/main.js" blocking="render"></script>
</head>
<body><noscript>This page needs JavaScript.</noscript></body>
</html>
`;

const compiled = fileURLToPath(new URL("../page", import.meta.url));
const source = fileURLToPath(new URL("../../../../src/web/page", import.meta.url));

/** Every file the page may ask for, by its path; read once. */
export function readAssets(): ReadonlyMap<string, Asset> {
  const own = readdirSync(compiled)
    .filter((name) => name.endsWith(".js"))
    .map((name) => [`/page/${name}`, join(compiled, name), script] as const);
  const styles = [
    ["/page/style.css", join(source, "style.css"), style],
    ["/page/icon.svg", join(source, "icon.svg"), "image/svg+xml"],
    ["/lib/uplot.css", beside(import.meta.url, "uplot", "uPlot.min.css"), style],
  ] as const;
  const modules = Object.entries(libraries).map(
    ([name, file]) => [libraryUrl(name), file(), script] as const,
  );
  return new Map(
    [...own, ...styles, ...modules].map(([path, file, type]) => [path, asset(file, type)]),
  );
}

function asset(file: string, type: string): Asset {
  const body = readFileSync(file, "utf8").replace(/\n\/\/# sourceMappingURL=.*\s*$/, "\n");
  const etag = `"${createHash("sha256").update(body).digest("base64url").slice(0, 16)}"`;
  return { body, type, etag };
}
