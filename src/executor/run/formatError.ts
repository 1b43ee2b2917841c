import type { ServerError } from "../../shared/postgres/protocol/messages.js";

/** An error of the server as the text of the column `error`, laid out as in the server's own log. */
export function formatError(error: ServerError, input: string): string {
  const position = error.position ?? error.internalPosition;
  const at = position === undefined ? "" : ` at character ${position}`;
  return [
    line(error.severity, error.message) + at,
    line("DETAIL", error.detail),
    line("HINT", error.hint),
    line("QUERY", error.internalQuery),
    line("CONTEXT", error.where),
    line("STATEMENT", input),
  ]
    .filter((part) => part !== "")
    .join("\n");
}

/** An error of pg-task's own in the same layout. */
export function formatOwnError(message: string, input: string, detail?: string): string {
  const lines = [line("ERROR", message), line("DETAIL", detail), line("STATEMENT", input)];
  return lines.filter((part) => part !== "").join("\n");
}

function line(label: string, text: string | undefined): string {
  return text === undefined ? "" : `${label}:  ${text.replaceAll("\n", "\n\t")}`;
}
