import assert from "node:assert/strict";

/** A block of SQL on a page, and the result that the page shows below it. */
export interface DocumentedBlock {
  readonly sql: string;
  readonly result: string | undefined;
}

/** Returns the blocks of SQL of a page. Fails if one of its blocks of SQL or results has another form. */
export function documentedBlocks(page: string): DocumentedBlock[] {
  const blocks = [...page.matchAll(/^```sql\n(.*?)^```\n(?:\n```\n(.*?)\n```$)?/gms)].map(([, sql = "", result]) => ({
    sql,
    result,
  }));
  assert.equal(blocks.length, page.match(/^```sql$/gm)?.length ?? 0);
  const results = blocks.filter(({ result }) => result !== undefined);
  assert.equal(results.length, page.match(/^```\n(?!\n|$)/gm)?.length ?? 0);
  return blocks;
}
