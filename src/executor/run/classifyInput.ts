/** Blanks, comments and empty statements before the first statement. */
const leading = /^(?:[\s;]+|--[^\n\r]*)*/;
const startsTransaction = /^(?:BEGIN|START\s+TRANSACTION)\b/i;

/**
 * What may end the transaction, cannot run in one, must be the first in one, or reads from the
 * client; in a comment or a string it costs only time.
 */
const special =
  /\b(?:abort|begin|call|cluster|commit|concurrently|copy|database|discard|do|end|prepare|reindex|rollback|start|subscription|system|tablespace|transaction|vacuum)\b|\btransaction_/i;

/**
 * What may keep the end of a transaction from being entered as it usually is: another role, limits; or
 * the next one from beginning right behind it.
 */
const restricting =
  /\b(?:authorization|listen|role|session_authorization|set_config)\b|_timeout\b/i;

/**
 * What the extended protocol refuses, several statements, or answers otherwise: parameters, a look at
 * the cursors, of which its own are some. In a comment or a string it costs only time.
 */
const simpleOnly = /;(?!\s*$)|\$\d|cursor/i;

/** In a comment or a string it costs only time. */
const blockOnly = /\b(?:declare|local|lock|release|savepoint)\b/i;

/** Blanks and comments, as far as they are few, short and not nested: a look at them stays short as well. */
const blanks = String.raw`\s*(?:(?:--[^\n\r]{0,200}[\n\r]|/\*(?:[^*/]|\*(?!/)|/(?!\*)){0,200}\*/)\s*){0,4}`;
let gaps = 0;
/** None of it is given back, so that a comment behind it is one that it does not take. */
const gap = (): string => `(?=(?<gap${(gaps += 1)}>${blanks}))\\k<gap${gaps}>`;
const otherComment = String.raw`--|/\*`;
const word = String.raw`[\w\x80-\uffff][\w$\x80-\uffff]*`;

/**
 * What leaves something in a session that no reset takes away: the next random(), which a setting
 * makes as well, connections, an origin, slots, a backup, libraries, and settings that were not there,
 * which are empty from then on.
 * Those of pg-task count as not made when they are empty. In a comment or a string it costs a login; so
 * do names with Unicode escapes, which may be any of these, and comments that are not looked through.
 */
const lasting = new RegExp(
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

/** Inputs up to this are searched, in characters. */
const longest = 1 << 16;

/** Whether an input begins its transaction itself. */
export function beginsTransaction(input: string): boolean {
  return startsTransaction.test(afterComments(input));
}

/**
 * Whether it is sure beforehand how an input leaves its transaction, open or failed, and likely that
 * its end is nothing special either.
 */
export function isWrappable(input: string): boolean {
  return input.length <= longest && !special.test(input) && !restricting.test(input);
}

/** Whether it may be that a statement of it does nothing, or fails, outside of a transaction block. */
export function needsBlock(input: string): boolean {
  return blockOnly.test(input);
}

/** Whether it may be that something of an input is left in its session after a reset. */
export function mayLast(input: string): boolean {
  return input.length > longest || lasting.test(input);
}

/** Whether it is one statement at most, and the same in the extended protocol as in the simple one. */
export function isSingle(input: string): boolean {
  return !simpleOnly.test(input);
}

function afterComments(input: string): string {
  let rest = input;
  for (;;) {
    rest = rest.replace(leading, "");
    if (!rest.startsWith("/*")) return rest;
    rest = rest.slice(commentLength(rest));
  }
}

/** Comments nest. */
function commentLength(text: string): number {
  let depth = 0;
  for (const { 0: mark, index } of text.matchAll(/\/\*|\*\//g)) {
    depth += mark === "/*" ? 1 : -1;
    if (depth === 0) return index + 2;
  }
  return text.length;
}
