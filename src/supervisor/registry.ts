import type { Configuration } from "../shared/config/types.js";
import type { Log } from "../shared/log.js";
import { shareOut } from "./grants.js";
import { ManagerThread } from "./managerThread.js";

interface Registered {
  readonly thread: ManagerThread;
  /** Resolves when it has said for the first time whether it serves its table or waits. */
  readonly answered: Promise<void>;
  demand: number;
  /** What it was told last. */
  granted: number;
  /** What it may still have: less only once it has said that it has let go. */
  held: number;
}

/** The managers of the leader: one for each entry, and the sessions they share. */
export class Registry {
  readonly #configuration: Configuration;
  readonly #log: Log;
  readonly #writeLine: (line: string) => void;
  #managers: Registered[] = [];
  #stopping = new AbortController();
  #short = false;

  constructor(
    configuration: Configuration,
    options: { readonly log: Log; readonly writeLine: (line: string) => void },
  ) {
    this.#configuration = configuration;
    this.#log = options.log;
    this.#writeLine = options.writeLine;
  }

  get running(): boolean {
    return this.#managers.length > 0;
  }

  /** Starts a manager for each entry, a few at once; resolves when each has served or waited once. */
  async start(): Promise<void> {
    this.#stopping = new AbortController();
    const atOnce = this.#configuration.parameters["pg_conf.fetch"];
    this.#managers = this.#configuration.entries.map((entry) =>
      this.#register(new ManagerThread(entry, { log: this.#log, writeLine: this.#writeLine })),
    );
    const waiting = [...this.#managers];
    await Promise.all(
      Array.from({ length: Math.min(atOnce, waiting.length) }, async () => {
        for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
          if (this.#stopping.signal.aborted) return;
          next.thread.start();
          await Promise.race([next.answered, aborted(this.#stopping.signal)]);
        }
      }),
    );
  }

  /** Ends all managers; asked again, the shorter grace holds. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping.abort();
    const managers = this.#managers;
    await Promise.all(managers.map(({ thread }) => thread.stop(graceMs)));
    if (this.#managers === managers) this.#managers = [];
  }

  #register(thread: ManagerThread): Registered {
    const answered = new Promise<void>((resolve) => {
      thread.once("ready", () => resolve());
      thread.once("waiting", () => resolve());
    });
    const registered: Registered = { thread, answered, demand: 0, granted: 0, held: 0 };
    thread.on("demand", (sessions) => {
      registered.demand = sessions;
      this.#share();
    });
    thread.on("held", (sessions) => {
      registered.held = Math.max(sessions, registered.granted);
      this.#share();
    });
    thread.on("died", () => {
      registered.demand = registered.granted = registered.held = 0;
      this.#share();
    });
    return registered;
  }

  /** The sum of what is held is never more than there are sessions. */
  #share(): void {
    const total = this.#configuration.parameters["pg_conf.max"];
    const shares = shareOut(
      total,
      this.#managers.map(({ demand }) => demand),
    );
    let free = total - this.#managers.reduce((sum, { held }) => sum + held, 0);
    for (const [index, manager] of this.#managers.entries()) {
      const share = Math.min(shares[index] ?? 0, manager.held + free);
      free -= Math.max(0, share - manager.held);
      manager.held = Math.max(manager.held, share);
      if (share === manager.granted) continue;
      manager.granted = share;
      manager.thread.grant(share);
    }
    this.#sayShortage(total);
  }

  #sayShortage(total: number): void {
    const wanted = this.#managers.reduce((sum, { demand }) => sum + demand, 0);
    if (wanted > total && !this.#short) {
      this.#log.warn(
        { wanted, "pg_conf.max": total },
        "more sessions wanted than granted, tasks wait",
      );
    }
    this.#short = wanted > total;
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
