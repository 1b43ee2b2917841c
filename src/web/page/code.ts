import { html } from "htm/preact";
import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { isJson, jsonTokens, sqlTokens, type Token } from "./tokens.js";
import { printableText } from "../../shared/printable.js";

/** Longer texts are shown without colours, because each token is an element of its own. In characters. */
const maxColoured = 50_000;

/**
 * Part of the page, because no small library knows dollar quotes, nested comments and strings with backslashes, and the
 * larger ones need a bundler.
 */
export function Code({ text, sql = false }: { text: string; sql?: boolean }): VNode | readonly (VNode | string)[] {
  return useMemo(() => {
    const shown = printableText(text);
    if (shown.length > maxColoured) return [shown];
    if (sql) return sqlTokens(shown).map(coloured);
    return isJson(text) ? jsonTokens(shown).map(coloured) : [shown];
  }, [text, sql]);
}

const coloured = ({ kind, text }: Token): VNode | string =>
  kind === "plain" ? text : html`<span class=${`c-${kind}`}>${text}</span>`;
