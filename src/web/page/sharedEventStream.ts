import { request } from "./apiClient.js";

export type LiveEvent =
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
 * Calls `handle` for each event until `signal` is aborted. Browsers allow six connections per server, and each stream
 * takes one connection. Therefore, one tab holds the stream for all tabs and broadcasts its events. When that tab goes
 * away, another tab takes over. This coordination requires https or a server on this machine. Without it, each tab has
 * its own stream. The state of a tab:
 *
 *     following ──lock granted──▶ leading
 *         └───────lock refused──▶ own stream
 *
 * The state of a stream, until `signal` is aborted:
 *
 *     connecting ──▶ connected ──lost, silent for too long──▶ disconnected ──after a pause──▶ connecting
 */
export function subscribeToEvents(handle: EventHandler, signal: AbortSignal): void {
  signal.addEventListener("abort", () => handle(disconnected));
  if (!isSecureContext || !("locks" in navigator)) {
    void keepStream(handle, signal);
    return;
  }
  const channel = new BroadcastChannel(channelName);
  const silence = new Timer(silenceMs, () => handle(disconnected));
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
  signal.addEventListener("abort", () => {
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
    await keepStream(handleAndBroadcast, signal);
  };
  navigator.locks.request(channelName, { signal }, lead).catch(() => {
    // Either `signal` was aborted while this tab waited for the lock, or the browser refused the lock.
    if (!signal.aborted) void keepStream(handle, signal);
  });
}

async function keepStream(handle: EventHandler, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const lost = new AbortController();
    const abort = (): void => lost.abort();
    const silence = new Timer(silenceMs, abort);
    signal.addEventListener("abort", abort);
    try {
      silence.restart();
      const { body } = await request("/events", { signal: lost.signal });
      if (body !== null) await readStream(body.getReader(), handle, () => silence.restart());
    } catch {
      // The error is ignored here, because the requests for the shown data fail with the same error and report it.
    }
    silence.stop();
    signal.removeEventListener("abort", abort);
    if (signal.aborted) return;
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

class Timer {
  readonly #ms: number;
  readonly #onTimeout: () => void;
  #timer: number | undefined;

  constructor(ms: number, onTimeout: () => void) {
    this.#ms = ms;
    this.#onTimeout = onTimeout;
  }

  restart(): void {
    this.stop();
    this.#timer = window.setTimeout(this.#onTimeout, this.#ms);
  }

  stop(): void {
    window.clearTimeout(this.#timer);
  }
}
