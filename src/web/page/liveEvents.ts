import { effect, signal } from "@preact/signals";
import { hearEvents, type Word } from "./sharedEventStream.js";
import { gate } from "./apiClient.js";

/** Whether pg-task is heard of now. */
export const connected = signal(false);

/** The tables whose changes pg-task hears of. */
export const live = signal<ReadonlySet<string>>(new Set());

/** Grows with each change to the table with this id. */
export const changes = signal<ReadonlyMap<string, number>>(new Map());

/** Grows when the role or a manager's state is another one, and when something may have been missed. */
export const clusterChanges = signal(0);

const visible = signal(document.visibilityState === "visible");

/** Hears of changes as long as the page can be seen and the token is accepted. */
export function followChanges(): void {
  document.addEventListener("visibilitychange", () => {
    visible.value = document.visibilityState === "visible";
  });
  effect(() => {
    if (!visible.value || gate.value !== null) return undefined;
    const ending = new AbortController();
    hearEvents(take, ending.signal);
    return () => ending.abort();
  });
}

function take(word: Word): void {
  if (word.event === "state") {
    if (word.connected && !connected.value) clusterChanges.value += 1;
    connected.value = word.connected;
    live.value = new Set(word.live);
  } else if (word.event === "missed" || word.event === "cluster") clusterChanges.value += 1;
  else {
    const now = new Map(changes.value);
    now.set(word.table, (now.get(word.table) ?? 0) + 1);
    changes.value = now;
  }
}
