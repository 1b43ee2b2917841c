import type { Layout } from "./layout.js";

/** What the extension's first version called its columns, and what they are called now. */
const names = [
  ["dt", "plan"],
  ["queue", '"group"'],
  ["request", "input"],
  ["response", "output"],
] as const;

export function isLegacyLayout({ columns }: Layout): boolean {
  return names.every(
    ([before, now]) => columns.has(before) && !columns.has(now.replaceAll('"', "")),
  );
}

/** What makes such a table fit. */
export function legacyLayoutStatements(qualified: string): string[] {
  return [
    ...names.map(([before, now]) => `ALTER TABLE ${qualified} RENAME COLUMN ${before} TO ${now}`),
    `ALTER TABLE ${qualified} ALTER COLUMN state SET DEFAULT 'PLAN'`,
    `UPDATE ${qualified} SET state = 'PLAN' WHERE state IN ('QUEUE', 'ASSIGN')`,
  ];
}
