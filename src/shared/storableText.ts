/**
 * Says what keeps PostgreSQL from storing a text: the NUL character or a lone surrogate. Returns null if nothing does. The
 * driver would replace a lone surrogate by another character, and may end the connection because of a NUL in a statement.
 */
export function unstorablePart(text: string): string | null {
  if (text.includes("\0")) return "the NUL character";
  return /\p{Surrogate}/u.test(text) ? "a lone surrogate (half of a character)" : null;
}
