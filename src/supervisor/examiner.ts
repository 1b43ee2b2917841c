import type { Entry } from "../shared/config/types.js";
import type { FromManager, ToManager } from "../shared/ipc/managerMessages.js";
import type { Rest, SleepingTable } from "../shared/ipc/sleepingTable.js";
import { Limiter } from "../shared/limiter.js";
import type { ManagerThread } from "./managerThread.js";
import type { ManagerWorker, SpareWorkers } from "./spareWorkers.js";
import { watchKey } from "./tableWatches.js";

/** How long the thread may take to take parameters, and to answer for the tables of one part, in ms. */
const limitsMs = { taking: 10_000, answering: 60_000 };

/** How many tables are examined together, and how many such parts at once, each on a connection of its own. */
const tablesPerPart = 250;
const partsAtOnce = 2;

/**
 * Finds out which tables can sleep without a manager having looked at them. Spare threads ask the servers. If such a
 * thread ends or does not answer, nothing is known of its tables, and each gets a manager.
 */
export class Examiner {
  readonly #spareWorkers: Pick<SpareWorkers, "take" | "giveBack">;
  readonly #limiter = new Limiter(partsAtOnce);
  readonly #threads = new Set<ExaminingThread>();

  constructor(spareWorkers: Pick<SpareWorkers, "take" | "giveBack">) {
    this.#spareWorkers = spareWorkers;
  }

  /** Lets the tables of these managers, which have not started yet, begin asleep if they have nothing to do. */
  async putToSleep(managers: readonly ManagerThread[]): Promise<void> {
    await this.#eachPart(
      managers,
      ({ entry }) => entry,
      async (part, tables, check) => {
        const watched = await Promise.all(
          part.map(async (manager, place) => {
            const table = tables[place] ?? null;
            return table !== null && (await manager.sleep.begin(table)) ? place : -1;
          }),
        );
        const places = watched.filter((place) => place >= 0);
        const rests = await check(places);
        for (const [nth, place] of places.entries()) part[place]?.sleep.prepare(rests[nth] ?? null);
      },
    );
  }

  /** Returns the entries in whose tables a manager would change nothing. */
  async findInOrder(entries: readonly Entry[]): Promise<ReadonlySet<Entry>> {
    const found = new Set<Entry>();
    await this.#eachPart(
      entries,
      (entry) => entry,
      async (part, tables, check) => {
        for (const [place, entry] of part.entries()) if ((tables[place] ?? null) !== null) found.add(entry);
        await check([]);
      },
    );
    return found;
  }

  stop(): void {
    for (const thread of this.#threads) thread.end();
  }

  async #eachPart<T>(
    all: readonly T[],
    entryOf: (each: T) => Entry,
    work: (
      part: readonly T[],
      tables: readonly (SleepingTable | null)[],
      check: (places: readonly number[]) => Promise<readonly (Rest | null)[]>,
    ) => Promise<void>,
  ): Promise<void> {
    if (all.length === 0) return;
    const worker = this.#spareWorkers.take();
    const thread = new ExaminingThread(worker);
    this.#threads.add(thread);
    const jobs = partsOf(all, (each) => watchKey(entryOf(each).target)).map((part) =>
      this.#limiter.run(async () => {
        const { tables, check } = await thread.examine(part.map(entryOf));
        await work(part, tables, check);
      }),
    );
    await Promise.all(jobs);
    this.#threads.delete(thread);
    if (thread.isSound) this.#spareWorkers.giveBack(worker);
  }
}

/** Parts of a limited size, whose elements all have the same key. */
function partsOf<T>(all: readonly T[], keyOf: (each: T) => string): T[][] {
  const latest = new Map<string, T[]>();
  const parts: T[][] = [];
  for (const each of all) {
    const key = keyOf(each);
    let part = latest.get(key);
    if (part === undefined || part.length === tablesPerPart) {
      latest.set(key, (part = []));
      parts.push(part);
    }
    part.push(each);
  }
  return parts;
}

/** A spare thread that examines tables, until it is given back, fails or does not answer in time. */
class ExaminingThread {
  readonly #thread: ManagerWorker;
  readonly #waiting = new Map<number, (answer: FromManager | null) => void>();
  #lastNumber = 0;
  #hasFailed = false;

  constructor(thread: ManagerWorker) {
    this.#thread = thread;
    const { worker } = thread;
    worker.on("error", () => this.#fail());
    worker.on("exit", () => this.#fail());
    worker.on("message", (message: FromManager) => {
      if (message.type === "examined" || message.type === "checked") this.#waiting.get(message.number)?.(message);
    });
  }

  /** Whether managers can use the thread. */
  get isSound(): boolean {
    return !this.#hasFailed;
  }

  /** @param entries all with the same target */
  async examine(entries: readonly Entry[]) {
    const number = (this.#lastNumber += 1);
    const examined = await this.#ask(number, () => {
      this.#thread.sender
        .send({ entries }, (handover) => this.#post({ type: "examine", number, ...handover }), limitsMs.taking)
        .catch(() => this.end());
    });
    const tables = examined?.type === "examined" ? examined.tables : [];
    const check = async (places: readonly number[]): Promise<readonly (Rest | null)[]> => {
      const checked = await this.#ask(number, () => this.#post({ type: "check", number, places }));
      return checked?.type === "checked" ? checked.rests : [];
    };
    return { tables, check };
  }

  /** Ends the thread. What has been asked remains unanswered. */
  end(): void {
    this.#fail();
    void this.#thread.worker.terminate();
  }

  async #ask(number: number, ask: () => void): Promise<FromManager | null> {
    if (this.#hasFailed) return null;
    return await new Promise((resolve) => {
      const timer = setTimeout(() => this.end(), limitsMs.answering);
      this.#waiting.set(number, (answer) => {
        clearTimeout(timer);
        this.#waiting.delete(number);
        resolve(answer);
      });
      ask();
    });
  }

  #post(message: ToManager): void {
    this.#thread.worker.postMessage(message);
  }

  #fail(): void {
    this.#hasFailed = true;
    for (const answer of this.#waiting.values()) answer(null);
  }
}
