/**
 * What keeps PostgreSQL from storing a text, if anything. The driver would replace a lone surrogate, and may end the
 * connection because of a NUL.
 */
export function unstorablePart(text: string): string | null {
  if (text.includes("\0")) return "the NUL character";
  return /\p{Surrogate}/u.test(text) ? "a lone surrogate (half of a character)" : null;
}
