/** The code of a system error such as ENOENT; empty when it has none. */
export function errorCode(error: unknown): string {
  const hasCode = error instanceof Error && "code" in error && typeof error.code === "string";
  return hasCode ? String(error.code) : "";
}
