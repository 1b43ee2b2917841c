import { html } from "htm/preact";
import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
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

export interface Token {
  readonly kind: "comment" | "string" | "name" | "number" | "keyword" | "plain";
  readonly text: string;
}

const keywords = new Set(
  `add all alter analyze and any array as asc at begin between by call cascade case cast check close cluster collate column
  comment commit concurrently conflict constraint copy create cross current current_date current_timestamp current_user
  cursor cycle database declare default delete desc discard distinct do drop each else elsif end except exception execute
  exists explain extension false fetch filter first following for foreign from full function grant group grouping having if
  ilike in index inherits inner insert intersect interval into is isnull join key language last lateral left like limit
  listen local lock loop materialized merge natural next no not nothing notify notnull null nulls of offset on only or order
  ordinality out outer over partition perform policy preceding prepare primary procedure raise range recursive references
  refresh reindex release reset restrict return returning returns revoke right rollback row rows savepoint schema select
  sequence set sets show similar some start table tablespace temp temporary then to transaction trigger true truncate
  unbounded union unique unlogged update using vacuum values variadic view when where while window with within without`
    .trim()
    .split(/\s+/),
);

/** The ends of block comments and of dollar quotes are searched for separately. */
const sqlElement = new RegExp(
  [
    String.raw`(?<comment>--[^\n]*)`,
    String.raw`(?<block>/\*)`,
    String.raw`(?<string>[eE]'[^'\\]*(?:(?:''|\\[^])[^'\\]*)*'?|(?:[bBxXnN]|[uU]&)?'[^']*(?:''[^']*)*'?)`,
    String.raw`(?<name>(?:[uU]&)?"[^"]*(?:""[^"]*)*"?)`,
    String.raw`(?<dollar>\$(?:[\p{L}_][\p{L}\p{N}_]*)?\$)`,
    String.raw`(?<number>\$\d+|0[xXoObB][\da-fA-F_]+|(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)`,
    String.raw`(?<word>[\p{L}_][\p{L}\p{N}_$]*)`,
  ].join("|"),
  "gu",
);

/** Splits SQL as with `standard_conforming_strings`. The tokens make up the whole text. */
export function sqlTokens(sql: string): Token[] {
  const tokens = new TokenList(sql);
  sqlElement.lastIndex = 0;
  for (let match = sqlElement.exec(sql); match !== null; match = sqlElement.exec(sql)) {
    const { comment, block, string, name, dollar, number, word } = match.groups ?? {};
    let end = sqlElement.lastIndex;
    if (block !== undefined) end = blockCommentEnd(sql, end);
    if (dollar !== undefined) end = endOf(sql, dollar, end);
    if (comment !== undefined || block !== undefined) tokens.add("comment", match.index, end);
    else if (string !== undefined || dollar !== undefined) tokens.add("string", match.index, end);
    else if (name !== undefined) tokens.add("name", match.index, end);
    else if (number !== undefined) tokens.add("number", match.index, end);
    else if (keywords.has((word ?? "").toLowerCase())) tokens.add("keyword", match.index, end);
    sqlElement.lastIndex = end;
  }
  return tokens.end();
}

function endOf(text: string, closing: string, from: number): number {
  const found = text.indexOf(closing, from);
  return found === -1 ? text.length : found + closing.length;
}

/** Block comments can be nested. */
function blockCommentEnd(sql: string, from: number): number {
  const mark = /\/\*|\*\//g;
  mark.lastIndex = from;
  for (let depth = 1; depth > 0;) {
    const match = mark.exec(sql);
    if (match === null) return sql.length;
    depth += match[0] === "/*" ? 1 : -1;
  }
  return mark.lastIndex;
}

const jsonElement =
  /(?<name>"[^"\\]*(?:\\[^][^"\\]*)*"(?=\s*:))|(?<string>"[^"\\]*(?:\\[^][^"\\]*)*"?)|(?<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?<keyword>\b(?:true|false|null)\b)/g;

export function jsonTokens(json: string): Token[] {
  const tokens = new TokenList(json);
  for (const match of json.matchAll(jsonElement)) {
    const { name, string, number } = match.groups ?? {};
    const end = match.index + match[0].length;
    if (name !== undefined) tokens.add("name", match.index, end);
    else if (string !== undefined) tokens.add("string", match.index, end);
    else tokens.add(number === undefined ? "keyword" : "number", match.index, end);
  }
  return tokens.end();
}

export function isJson(text: string): boolean {
  if (!/^\s*[{[]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

class TokenList {
  readonly #text: string;
  readonly #tokens: Token[] = [];
  #end = 0;

  constructor(text: string) {
    this.#text = text;
  }

  add(kind: Token["kind"], from: number, to: number): void {
    this.#addPlain(from);
    this.#tokens.push({ kind, text: this.#text.slice(from, to) });
    this.#end = to;
  }

  end(): Token[] {
    this.#addPlain(this.#text.length);
    return this.#tokens;
  }

  #addPlain(to: number): void {
    if (to > this.#end) this.#tokens.push({ kind: "plain", text: this.#text.slice(this.#end, to) });
  }
}
