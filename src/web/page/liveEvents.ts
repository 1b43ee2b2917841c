import { effect, signal } from "@preact/signals";
import { request, tokenProblem } from "./apiClient.js";

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

type LiveEvent =
  /** Whether a stream is connected, and the tables it watches. */
  | { readonly event: "state"; readonly connected: boolean; readonly live: readonly string[] }
  | { readonly event: "missed" }
  | { readonly event: "cluster" }
  | { readonly event: "changed"; readonly table: string };

/** With `ask`, a new tab asks the leading tab for the current state. */
type TabMessage = LiveEvent | { readonly event: "ask" };

type EventHandler = (event: LiveEvent) => void;

const channelName = "pg-task events";
const reconnectMs = 2_000;
/** In ms. The server sends at least one message every 5 s. */
const silenceMs = 15_000;

const disconnected: LiveEvent = { event: "state", connected: false, live: [] };

/**
 * Calls `handle` for each event until `ending` is aborted. Browsers allow six connections per server, and each stream
 * takes one connection. Therefore, one tab holds the stream for all tabs and broadcasts its events. When that tab goes
 * away, another tab takes over. This coordination requires https or a server on this machine. Without it, each tab has
 * its own stream. The state of a tab:
 *
 *     following ──lock granted──▶ leading
 *         └───────lock refused──▶ own stream
 *
 * The state of a stream, until `ending` is aborted:
 *
 *     connecting ──▶ connected ──lost, silent for too long──▶ disconnected ──after a pause──▶ connecting
 */
function subscribeToEvents(handle: EventHandler, ending: AbortSignal): void {
  ending.addEventListener("abort", () => handle(disconnected));
  if (!isSecureContext || !("locks" in navigator)) {
    void keepStream(handle, ending);
    return;
  }
  const channel = new BroadcastChannel(channelName);
  const silence = silenceTimer(() => handle(disconnected));
  const broadcast = (message: TabMessage): void => channel.postMessage(message);
  let isLeading = false;
  let state = disconnected;
  channel.addEventListener("message", ({ data }: MessageEvent<TabMessage>) => {
    if (isLeading) {
      if (data.event === "ask") broadcast(state);
    } else if (data.event !== "ask") {
      silence.restart();
      handle(data);
    }
  });
  ending.addEventListener("abort", () => {
    silence.stop();
    if (isLeading) broadcast(disconnected);
    channel.close();
  });
  broadcast({ event: "ask" });
  const handleAndBroadcast: EventHandler = (event) => {
    if (event.event === "state") state = event;
    broadcast(event);
    handle(event);
  };
  const lead = async (): Promise<void> => {
    isLeading = true;
    silence.stop();
    await keepStream(handleAndBroadcast, ending);
  };
  navigator.locks.request(channelName, { signal: ending }, lead).catch(() => {
    // Either `ending` was aborted while this tab waited for the lock, or the browser refused the lock.
    if (!ending.aborted) void keepStream(handle, ending);
  });
}

async function keepStream(handle: EventHandler, ending: AbortSignal): Promise<void> {
  while (!ending.aborted) {
    const lost = new AbortController();
    const silence = silenceTimer(() => lost.abort());
    try {
      silence.restart();
      const { body } = await request("/events", { signal: AbortSignal.any([ending, lost.signal]) });
      if (body !== null) await readStream(body.getReader(), handle, () => silence.restart());
    } catch {
      // The error is ignored here, because the requests for the shown data fail with the same error and report it.
    }
    silence.stop();
    if (ending.aborted) return;
    handle(disconnected);
    await new Promise((resolve) => setTimeout(resolve, reconnectMs));
  }
}

async function readStream(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  handle: EventHandler,
  onData: () => void,
): Promise<void> {
  const decoder = new TextDecoder();
  const live = new Set<string>();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    onData();
    const messages = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = messages.pop() ?? "";
    for (const message of messages) applyMessage(message, live, handle);
  }
}

function applyMessage(message: string, live: Set<string>, handle: EventHandler): void {
  const event = /^event: (.*)$/m.exec(message)?.[1];
  const data: { table?: string; live?: boolean } = JSON.parse(/^data: (.*)$/m.exec(message)?.[1] ?? "{}");
  const { table } = data;
  if (event === "cluster") handle({ event });
  else if (event === "changed" && table !== undefined) handle({ event, table });
  else if (event === "live" && table !== undefined) {
    if (data.live === true) live.add(table);
    else live.delete(table);
  }
  // A new stream does not report changes made before it was opened, so changes may have been missed.
  if (event === "hello") handle({ event: "missed" });
  if (event !== "cluster" && event !== "changed") {
    handle({ event: "state", connected: true, live: [...live] });
  }
}

/** Calls `onSilence` when the timer has not been restarted for `silenceMs`. */
function silenceTimer(onSilence: () => void) {
  let timer: number | undefined;
  const stop = (): void => window.clearTimeout(timer);
  const restart = (): void => {
    stop();
    timer = window.setTimeout(onSilence, silenceMs);
  };
  return { stop, restart };
}
