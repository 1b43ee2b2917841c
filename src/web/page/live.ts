import { effect, signal } from "@preact/signals";
import { ask, gate } from "./session.js";

/** Whether changes are heard of now. */
export const connected = signal(false);

/** Grows with each change to the table with this id, and with each time the stream begins anew. */
export const changes = signal<ReadonlyMap<string, number>>(new Map());

/** Grows when the role or a manager's state is another one. */
export const clusterChanges = signal(0);

const againMs = 2_000;
const visible = signal(document.visibilityState === "visible");

/** Hears of changes as long as the page can be seen and the token is accepted. */
export function followChanges(): void {
  document.addEventListener("visibilitychange", () => {
    visible.value = document.visibilityState === "visible";
  });
  effect(() => {
    if (!visible.value || gate.value !== null) return undefined;
    const ending = new AbortController();
    void follow(ending.signal);
    return () => ending.abort();
  });
}

async function follow(ending: AbortSignal): Promise<void> {
  while (!ending.aborted) {
    try {
      const response = await ask("/events", { signal: ending });
      if (response.body !== null) await hear(response.body.getReader());
    } catch {
      // Whoever shows something says why there is nothing; here it is tried again.
    }
    connected.value = false;
    if (!ending.aborted) await new Promise((resolve) => setTimeout(resolve, againMs));
  }
}

async function hear(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) take(part);
  }
}

function take(message: string): void {
  const event = /^event: (.*)$/m.exec(message)?.[1];
  const data: { table?: string } = JSON.parse(/^data: (.*)$/m.exec(message)?.[1] ?? "{}");
  if (event === "hello") {
    connected.value = true;
    // What happened before is not told any more.
    clusterChanges.value += 1;
  } else if (event === "cluster") clusterChanges.value += 1;
  else if (event === "changed" && data.table !== undefined) {
    const now = new Map(changes.value);
    now.set(data.table, (now.get(data.table) ?? 0) + 1);
    changes.value = now;
  }
}
