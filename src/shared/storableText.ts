/** What PostgreSQL cannot store. The driver would replace a lone surrogate, and a NUL may end the connection. */
export function unstorablePart(text: string): string | null {
  if (text.includes("\0")) return "the NUL character";
  return /\p{Surrogate}/u.test(text) ? "a lone surrogate (half of a character)" : null;
}
