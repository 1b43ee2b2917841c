import type { Client } from "pg";
import { one } from "./database.js";

const pings = 50;

/** Milliseconds since 1970 by this process's clock, with microsecond precision. */
export function now(): number {
  return performance.timeOrigin + performance.now();
}

/** Returns how far the server's clock is ahead of `now()`, in ms. Measured in the fastest of several round trips. */
export async function serverAhead(client: Client): Promise<number> {
  let quickest = Infinity;
  let ahead = 0;
  for (let i = 0; i < pings; i += 1) {
    const sent = now();
    const { at } = await one<{ at: number }>(
      client,
      "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS at",
    );
    const received = now();
    if (received - sent < quickest) {
      quickest = received - sent;
      ahead = at - (sent + received) / 2;
    }
  }
  return ahead;
}
