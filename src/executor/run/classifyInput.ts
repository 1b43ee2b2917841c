import { maxSearchedLength } from "../tuning.js";

/** Matches white space, line comments and empty statements before the first statement. */
const leading = /^(?:[\s;]+|--[^\n\r]*)*/;
const startsTransaction = /^(?:BEGIN|START\s+TRANSACTION)\b/i;

/**
 * Matches keywords that can end the transaction, cannot run in a transaction, must come first in a transaction, or read
 * from the client. A match in a comment or string does no harm: the run only takes longer.
 */
const affectsTransaction =
  /\b(?:abort|begin|call|cluster|commit|concurrently|copy|database|discard|do|end|prepare|reindex|rollback|start|subscription|system|tablespace|transaction|vacuum)\b|\btransaction_/i;

/**
 * Matches keywords that can make finish (the writing of the proof) fail, for example by setting a role or a timeout, or
 * that can prevent the next transaction from being chained to this one.
 */
const affectsFinish = /\b(?:authorization|listen|role|session_authorization|set_config)\b|_timeout\b/i;

/**
 * Matches what the extended protocol refuses, or answers differently from the simple protocol. The extended protocol
 * refuses several statements in one message. It answers differently if the input has parameters, or lists the cursors,
 * because the list then contains the protocol's own cursor. A match in a comment or string does no harm: the run only
 * takes longer.
 */
const needsSimpleProtocol = /;(?!\s*$)|\$\d|cursor/i;

/** Matches keywords that need a transaction block. */
const mayNeedBlock = /\b(?:declare|local|lock|release|savepoint)\b/i;

/** Matches white space and comments. The comments must be few, short and not nested, so that matching stays fast. */
const blanks = String.raw`\s*(?:(?:--[^\n\r]{0,200}[\n\r]|/\*(?:[^*/]|\*(?!/)|/(?!\*)){0,200}\*/)\s*){0,4}`;
let gaps = 0;
/**
 * Returns a pattern that matches `blanks` atomically, that is, without backtracking. Therefore, if a comment follows
 * the matched gap, it is a comment that `blanks` does not match.
 */
const gap = (): string => `(?=(?<gap${(gaps += 1)}>${blanks}))\\k<gap${gaps}>`;
const otherComment = String.raw`--|/\*`;
const word = String.raw`[\w\x80-\uffff][\w$\x80-\uffff]*`;

/**
 * Matches what leaves something in a session that no reset removes:
 * - the seed of random(), which can also be changed by a setting;
 * - connections, a replication origin, replication slots, a backup, and loaded libraries;
 * - new custom settings, which stay defined with an empty value. The settings of pg-task are exempt, because they count
 *   as unset when empty.
 *
 * A match in a comment or string costs a login, because the session is replaced. Names with Unicode escapes also match,
 * because they could stand for any of these names. So do comments that the pattern does not skip.
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

/** Whether a statement of the input could fail, or have no effect, outside of a transaction block. */
export function mayNeedTransactionBlock(input: string): boolean {
  return mayNeedBlock.test(input);
}

/** Whether the input could leave something in its session that a reset does not remove. */
export function mayOutliveReset(input: string): boolean {
  return input.length > maxSearchedLength || outlivesReset.test(input);
}

/** Whether the input is at most one statement, which both protocols answer alike. */
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

/** Returns the length of the block comment at the beginning of the text. Block comments can be nested. */
export function commentLength(text: string): number {
  let depth = 0;
  for (const { 0: mark, index } of text.matchAll(/\/\*|\*\//g)) {
    depth += mark === "/*" ? 1 : -1;
    if (depth === 0) return index + 2;
  }
  return text.length;
}
