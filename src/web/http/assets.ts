import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { packageFile } from "../../shared/packageFile.js";
import { etagOf } from "./compression.js";

export interface Asset {
  readonly body: Buffer<ArrayBuffer>;
  readonly compressed: Buffer<ArrayBuffer>;
  readonly type: string;
  readonly etag: string;
}

/** What the build has made of the page's modules and style sheets. */
const bundleFolder = packageFile("dist/src/web/bundle/");

const icon = readFileSync(packageFile("src/web/page/icon.svg"), "utf8").trim();

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
    const answer = await fetch(location.href, { cache: "no-store" }).catch(() => null);
    if (answer !== null && answer.ok) location.reload();
  }, 2000);
}, true);`;

const hashOf = (text: string): string => `sha256-${createHash("sha256").update(text).digest("base64")}`;

export const inlineScriptHashes: readonly string[] = [hashOf(loadFailureScript)];

/** @param base path under which the page is mounted, without a slash at its end */
export const pageHtml = (base: string): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>pg-task</title>
<link rel="icon" href="data:image/svg+xml,${encodeURIComponent(icon)}" type="image/svg+xml">
<link rel="stylesheet" href="${base}/page/style.css">
<script>${loadFailureScript}</script>
<script type="module" src="${base}/page/page.js" blocking="render"></script>
</head>
<body><noscript>This page needs JavaScript.</noscript></body>
</html>
`;

/** The keys are URL paths. */
export const readAssets = (): ReadonlyMap<string, Asset> =>
  new Map([
    ["/page/page.js", readAsset("page.js", "text/javascript; charset=utf-8")],
    ["/page/style.css", readAsset("style.css", "text/css; charset=utf-8")],
  ]);

function readAsset(name: string, type: string): Asset {
  const body = readFileSync(new URL(name, bundleFolder));
  return { body, compressed: gzipSync(body, { level: 9 }), type, etag: etagOf(body) };
}
