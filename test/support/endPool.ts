import type { Pool } from "pg";

/**
 * Ends a pool, and waits until its connections are closed. `pool.end()` alone resolves earlier, and if the database is
 * dropped then, the pool emits the server's error.
 */
export async function endPool(pool: Pool): Promise<void> {
  let open = pool.totalCount;
  const closed = new Promise<void>((resolve) => {
    if (open === 0) resolve();
    pool.on("remove", () => {
      open -= 1;
      if (open === 0) resolve();
    });
  });
  await pool.end();
  await closed;
}
