/** A block of SQL on a page, and the result that the page shows below it. */
export interface DocumentedBlock {
  readonly sql: string;
  readonly result: string | undefined;
}

export const documentedBlocks = (page: string): DocumentedBlock[] =>
  [...page.matchAll(/^```sql\n(.*?)^```\n(?:\n```\n(.*?)\n```$)?/gms)].map(([, sql = "", result]) => ({ sql, result }));
