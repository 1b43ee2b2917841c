/** The system's code of a thrown error, `ENOENT` and the like; empty when it has none. */
export function errorCode(error: unknown): string {
  const hasCode = error instanceof Error && "code" in error && typeof error.code === "string";
  return hasCode ? String(error.code) : "";
}

export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
