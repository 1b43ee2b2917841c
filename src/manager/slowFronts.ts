import type { Executors, ExecutorThread } from "./executors.js";
import type { Session, SessionEvents } from "./session.js";
import { Watch } from "./watch.js";

/** After this a front is slow: what waits behind it is called back, in ms. */
export const slowMs = 50;
/** After this it is stuck: its session does not count when there are enough for short runs, in ms. */
const stuckMs = 200;

/** Looks, while sessions are busy, which of them are held up by a run that takes longer than was expected. */
export class SlowFronts {
  readonly #sessions: ReadonlyMap<number, Session>;
  readonly #executors: Executors;
  readonly #events: Pick<SessionEvents, "started" | "changed">;
  readonly #watch = new Watch(slowMs / 2, () => this.#look());

  constructor(
    sessions: ReadonlyMap<number, Session>,
    {
      executors,
      events,
    }: {
      readonly executors: Executors;
      readonly events: Pick<SessionEvents, "started" | "changed">;
    },
  ) {
    this.#sessions = sessions;
    this.#executors = executors;
    this.#events = events;
  }

  /** Sessions have something to do. */
  watch(): void {
    this.#watch.start();
  }

  /** Calls back what waits behind a slow front, and has the front's own row say that it runs. */
  #look(): void {
    const recalled = new Map<ExecutorThread, number[]>();
    let [busy, changed] = [false, false];
    for (const session of this.#sessions.values()) {
      const { front, frontMs, size } = session.queue;
      if (front === null || session.stuck) continue;
      busy = true;
      session.stuck = frontMs >= stuckMs;
      changed ||= session.stuck;
      if (session.slow || frontMs < slowMs) continue;
      session.slow = changed = true;
      if (!front.shown && session.backend !== null) {
        front.shown = true;
        this.#events.started({ id: front.id, owner: session.backend.owner, start: null });
      }
      if (size === 1) continue;
      session.recalls += 1;
      const numbers = recalled.get(session.thread);
      if (numbers === undefined) recalled.set(session.thread, [session.number]);
      else numbers.push(session.number);
    }
    for (const [thread, sessions] of recalled)
      this.#executors.tell(thread, { type: "recall", sessions });
    if (busy) this.#watch.start();
    if (changed) this.#events.changed(true);
  }
}
