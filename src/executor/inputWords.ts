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
export function isPlain(input: string): boolean {
  return input.length <= longest && !special.test(input) && !restricting.test(input);
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
