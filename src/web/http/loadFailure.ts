import { createHash } from "node:crypto";

/**
 * Script of the HTML page for the case that pg-task has gone before the browser has loaded the page's modules, in which
 * the page would stay empty. It is inline because it must not have to be loaded.
 */
export const loadFailureScript = `addEventListener("error", ({ target }) => {
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

/** Hash of the script for the Content-Security-Policy. */
export const loadFailureHash = `sha256-${createHash("sha256").update(loadFailureScript).digest("base64")}`;
