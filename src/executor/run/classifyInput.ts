import { maxSearchedLength } from "../tuning.js";

/** Matches white space, line comments and empty statements before the first statement. */
const leading = /^(?:[\s;]+|--[^\n\r]*)*/;
const startsTransaction = /^(?:BEGIN|START\s+TRANSACTION)\b/i;

/**
 * Keywords that can end the transaction, cannot run in one, must come first in one, or read from the client. A match in
 * a comment or string does no harm: the run only takes longer.
 */
const affectsTransaction =
  /\b(?:abort|begin|call|cluster|commit|concurrently|copy|database|discard|do|end|prepare|reindex|rollback|start|subscription|system|tablespace|transaction|vacuum)\b|\btransaction_/i;

/**
 * Keywords that can make finish fail, such as by a role or timeout, or keep the next transaction from being chained.
 */
const affectsFinish = /\b(?:authorization|listen|role|session_authorization|set_config)\b|_timeout\b/i;

/**
 * What the extended protocol refuses (several statements), or answers differently: an input with parameters, or one
 * that lists the cursors, among which would be the protocol's own.
 */
const needsSimpleProtocol = /;(?!\s*$)|\$\d|cursor/i;

/** Matches keywords that need a transaction block. */
const mayNeedBlock = /\b(?:declare|local|lock|release|savepoint)\b/i;

/** Matches white space and comments. The comments must be few, short and not nested, so that matching stays fast. */
const blanks = String.raw`\s*(?:(?:--[^\n\r]{0,200}[\n\r]|/\*(?:[^*/]|\*(?!/)|/(?!\*)){0,200}\*/)\s*){0,4}`;
let gaps = 0;
/** Matches `blanks` atomically, so that a comment behind the gap is one that `blanks` does not match. */
const gap = (): string => `(?=(?<gap${(gaps += 1)}>${blanks}))\\k<gap${gaps}>`;
const otherComment = String.raw`--|/\*`;
const word = String.raw`[\w\x80-\uffff][\w$\x80-\uffff]*`;

/**
 * What leaves something in a session that no reset removes: the seed of random(), connections, a replication origin or
 * slot, a backup, loaded libraries, and custom settings, except those of pg-task, which count as unset when empty. A
 * match in a comment or string costs a login, as do names with Unicode escapes, which could stand for any of these, and
 * comments that the pattern does not skip.
 */
const outlivesReset = new RegExp(
  [
    String.raw`\b(?:setseed|dblink\w*|pg_backup_start|pg_start_backup|pg_replication_origin_session_setup)\b`,
    String.raw`\bpg_(?:create|copy)_(?:physical|logical)_replication_slot\b`,
    String.raw`\bload\s*(?:(?:e|u&)?'|\$|${otherComment})`,
    String.raw`\bu&"`,
    String.raw`\b(?:re)?set\b${gap()}(?:(?:session|local)\b${gap()})?(?:${otherComment}|"?seed\b|(?!pg_task\s*\.)(?:${word}|"[^"]*")${gap()}(?:[."]|${otherComment}))`,
    String.raw`\bset_config\b(?!\s*\(\s*'(?:pg_task\.[^']*|(?!seed')[^'.\\]*)'\s*,)`,
  ].join("|"),
  "i",
);

export function beginsTransaction(input: string): boolean {
  return startsTransaction.test(skipComments(input));
}

/** Whether the input certainly does not end its transaction, and probably lets finish and COMMIT succeed. */
export function isWrappable(input: string): boolean {
  return input.length <= maxSearchedLength && !affectsTransaction.test(input) && !affectsFinish.test(input);
}

export function mayNeedTransactionBlock(input: string): boolean {
  return mayNeedBlock.test(input);
}

export function mayOutliveReset(input: string): boolean {
  return input.length > maxSearchedLength || outlivesReset.test(input);
}

export function isSingleStatement(input: string): boolean {
  return !needsSimpleProtocol.test(input);
}

function skipComments(input: string): string {
  let rest = input;
  for (;;) {
    rest = rest.replace(leading, "");
    if (!rest.startsWith("/*")) return rest;
    rest = rest.slice(commentLength(rest));
  }
}

/** Block comments can be nested. */
export function commentLength(text: string): number {
  let depth = 0;
  for (const { 0: mark, index } of text.matchAll(/\/\*|\*\//g)) {
    depth += mark === "/*" ? 1 : -1;
    if (depth === 0) return index + 2;
  }
  return text.length;
}
