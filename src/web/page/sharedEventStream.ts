import { ask } from "./apiClient.js";

/** What pages are told. */
export type Word =
  /** Whether pg-task is heard of, and the ids of the tables whose changes it hears of. */
  | { readonly event: "state"; readonly connected: boolean; readonly live: readonly string[] }
  /** Something may have happened that nobody was told of. */
  | { readonly event: "missed" }
  /** The role or a manager's state is another one. */
  | { readonly event: "cluster" }
  | { readonly event: "changed"; readonly table: string };

/** What pages of one browser say to each other. */
type Message = Word | { readonly event: "ask" };

type Tell = (word: Word) => void;

const name = "pg-task events";
const againMs = 2_000;
/** Without a word for so long the stream counts as lost, in ms: there is one every five seconds. */
const silenceMs = 15_000;

const nothing: Word = { event: "state", connected: false, live: [] };

/**
 * Calls `tell` until `ending`. Of all pages of this browser one has the stream and tells the others,
 * since a browser opens six connections to a server and each stream is one; when it goes, another has
 * it. Where pages cannot agree on one (without https, beyond this machine) each has its own.
 */
export function hearEvents(tell: Tell, ending: AbortSignal): void {
  ending.addEventListener("abort", () => tell(nothing));
  if (!isSecureContext || !("locks" in navigator)) {
    void keepStream(tell, ending);
    return;
  }
  const channel = new BroadcastChannel(name);
  const silence = new Timer(silenceMs, () => tell(nothing));
  const say = (message: Message): void => channel.postMessage(message);
  let leading = false;
  let state = nothing;
  channel.addEventListener("message", ({ data }: MessageEvent<Message>) => {
    if (leading) {
      if (data.event === "ask") say(state);
    } else if (data.event !== "ask") {
      silence.restart();
      tell(data);
    }
  });
  ending.addEventListener("abort", () => {
    silence.stop();
    if (leading) say(nothing);
    channel.close();
  });
  say({ event: "ask" });
  const pass: Tell = (word) => {
    if (word.event === "state") state = word;
    say(word);
    tell(word);
  };
  const lead = async (): Promise<void> => {
    leading = true;
    silence.stop();
    await keepStream(pass, ending);
  };
  navigator.locks.request(name, { signal: ending }, lead).catch(() => {
    // Given up before its turn, or refused by the browser.
    if (!ending.aborted) void keepStream(tell, ending);
  });
}

/** Has a stream open, whenever that is possible, until `ending`. */
async function keepStream(tell: Tell, ending: AbortSignal): Promise<void> {
  while (!ending.aborted) {
    const lost = new AbortController();
    const lose = (): void => lost.abort();
    const silence = new Timer(silenceMs, lose);
    ending.addEventListener("abort", lose);
    try {
      silence.restart();
      const { body } = await ask("/events", { signal: lost.signal });
      if (body !== null) await readStream(body.getReader(), tell, () => silence.restart());
    } catch {
      // Whoever shows something says why there is nothing; here it is tried again.
    }
    silence.stop();
    ending.removeEventListener("abort", lose);
    if (ending.aborted) return;
    tell(nothing);
    await new Promise((resolve) => setTimeout(resolve, againMs));
  }
}

async function readStream(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  tell: Tell,
  heard: () => void,
): Promise<void> {
  const decoder = new TextDecoder();
  const live = new Set<string>();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) takePart(part, live, tell);
  }
}

function takePart(part: string, live: Set<string>, tell: Tell): void {
  const event = /^event: (.*)$/m.exec(part)?.[1];
  const data: { table?: string; live?: boolean } = JSON.parse(
    /^data: (.*)$/m.exec(part)?.[1] ?? "{}",
  );
  const { table } = data;
  if (event === "cluster") tell({ event });
  else if (event === "changed" && table !== undefined) tell({ event, table });
  else if (event === "live" && table !== undefined) {
    if (data.live === true) live.add(table);
    else live.delete(table);
  }
  // What happened before the stream began is not told.
  if (event === "hello") tell({ event: "missed" });
  if (event !== "cluster" && event !== "changed") {
    tell({ event: "state", connected: true, live: [...live] });
  }
}

/** Does something when it was not restarted for that long. */
class Timer {
  readonly #ms: number;
  readonly #over: () => void;
  #timer: number | undefined;

  constructor(ms: number, over: () => void) {
    this.#ms = ms;
    this.#over = over;
  }

  restart(): void {
    this.stop();
    this.#timer = window.setTimeout(this.#over, this.#ms);
  }

  stop(): void {
    window.clearTimeout(this.#timer);
  }
}
