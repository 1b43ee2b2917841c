import { effect, signal } from "@preact/signals";
import { subscribeToEvents, type LiveEvent } from "./sharedEventStream.js";
import { tokenProblem } from "./apiClient.js";

/** In this tab or in another one. */
export const isConnected = signal(false);

/** Ids of the tables whose changes are reported as they happen. */
export const liveTables = signal<ReadonlySet<string>>(new Set());

/** By table id. */
export const tableChanges = signal<ReadonlyMap<string, number>>(new Map());

/** How many times this process's role or a manager's state has changed, or may have changed unnoticed. */
export const clusterChanges = signal(0);

const isVisible = signal(document.visibilityState === "visible");

export function subscribeToChanges(): void {
  document.addEventListener("visibilitychange", () => {
    isVisible.value = document.visibilityState === "visible";
  });
  effect(() => {
    if (!isVisible.value || tokenProblem.value !== null) return undefined;
    const ending = new AbortController();
    subscribeToEvents(applyEvent, ending.signal);
    return () => ending.abort();
  });
}

function applyEvent(message: LiveEvent): void {
  if (message.event === "state") {
    if (message.connected && !isConnected.value) clusterChanges.value += 1;
    isConnected.value = message.connected;
    liveTables.value = new Set(message.live);
  } else if (message.event === "missed" || message.event === "cluster") clusterChanges.value += 1;
  else {
    const now = new Map(tableChanges.value);
    now.set(message.table, (now.get(message.table) ?? 0) + 1);
    tableChanges.value = now;
  }
}
