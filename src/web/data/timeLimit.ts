import type { Client } from "../../shared/postgres/client.js";

/** Runs `work` with a signal that is aborted when `ms` have passed, or when `outer` is. */
export async function limited<T>(
  ms: number,
  outer: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const own = new AbortController();
  const abort = (): void => own.abort();
  const timer = setTimeout(abort, ms);
  outer.addEventListener("abort", abort);
  try {
    if (outer.aborted) abort();
    return await work(own.signal);
  } finally {
    clearTimeout(timer);
    outer.removeEventListener("abort", abort);
  }
}

/** Runs `work` on the connection, which is cut off when the signal is aborted: then `work` rejects. */
export async function cutOffAt<T>(
  signal: AbortSignal,
  client: Client,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const cut = (): void => void client.connection.stream.destroy();
  signal.addEventListener("abort", cut);
  try {
    if (signal.aborted) cut();
    return await work(client);
  } finally {
    signal.removeEventListener("abort", cut);
  }
}

/** Waits for `work`, but no longer than `ms`: `late` then. The work itself goes on. */
export async function inTime<T, L>(ms: number, work: Promise<T>, late: L): Promise<T | L> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<L>((resolve) => {
    timer = setTimeout(resolve, ms, late);
  });
  try {
    return await Promise.race([work, over]);
  } finally {
    clearTimeout(timer);
  }
}
