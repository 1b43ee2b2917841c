import { omitUndefined } from "../../shared/omitUndefined.js";
import { errorMessage } from "../../shared/errors.js";
import type { TaskFilter } from "../../tasks/types.js";
import { parseStates } from "../support/options.js";
import type { Scroll } from "./readPage.js";

/** The keys that start to type a part of the filter. */
const prompts = new Map<string, Prompt["field"]>([
  ["/", "text"],
  ["s", "states"],
  ["g", "group"],
]);

/** Ends before the last character, which may have several code points. */
const withoutLast = (text: string): string => text.slice(0, [...new Intl.Segmenter().segment(text)].at(-1)?.index ?? 0);

interface Prompt {
  readonly field: "text" | "states" | "group";
  readonly typed: string;
  readonly error: string | null;
}

/** What the user has chosen with keys: which tasks are shown. */
export class Controls {
  #filter: TaskFilter;
  #prompt: Prompt | null = null;
  #scroll: Scroll = 0;

  constructor(filter: TaskFilter) {
    this.#filter = filter;
  }

  get filter(): TaskFilter {
    return this.#filter;
  }

  /** The last line of the screen. */
  get line(): string {
    if (this.#prompt === null) {
      const clear = Object.keys(this.#filter).length === 0 ? "" : "Esc no filter  ";
      return `${clear}q quits  ↑ ↓ PgUp PgDn Home End  / text  s states  g group`;
    }
    const { field, typed, error } = this.#prompt;
    return `${field}: ${typed}_  ${error ?? "Enter filters, empty for all; Esc cancels"}`;
  }

  /** Returns how far the user has scrolled since the last call. */
  takeScroll(): Scroll {
    const scroll = this.#scroll;
    this.#scroll = 0;
    return scroll;
  }

  /**
   * Handles a key.
   *
   * @param rows number of tasks on the screen
   * @returns what the key changes: nothing, only the last line, or which tasks are shown; or that it quits
   */
  press(name: string, text: string, rows: number): "nothing" | "line" | "tasks" | "quit" {
    if (this.#prompt !== null) return this.#type(this.#prompt, name, text);
    const field = prompts.get(text);
    if (field !== undefined) {
      const current = this.#filter[field] ?? "";
      this.#prompt = { field, typed: typeof current === "string" ? current : current.join(","), error: null };
      return "line";
    }
    if (name === "q") return "quit";
    if (name === "escape") {
      if (Object.keys(this.#filter).length === 0) return "quit";
      return this.#setFilter({});
    }
    const scroll = scrollOf(name, rows);
    if (scroll === 0) return "nothing";
    if (typeof scroll === "string") this.#scroll = scroll;
    else if (typeof this.#scroll === "number") this.#scroll += scroll;
    return "tasks";
  }

  #type(prompt: Prompt, name: string, text: string): "line" | "tasks" {
    const { field, typed } = prompt;
    if (name === "escape") this.#prompt = null;
    else if (name === "return" || name === "enter") return this.#apply(field, typed);
    else if (name === "backspace") this.#prompt = { field, typed: withoutLast(typed), error: null };
    else if (name === "ctrl-u") this.#prompt = { field, typed: "", error: null };
    else this.#prompt = { field, typed: typed + text, error: null };
    return "line";
  }

  #apply(field: Prompt["field"], typed: string): "line" | "tasks" {
    const value = typed === "" ? undefined : typed;
    try {
      const states = field === "states" && value !== undefined ? parseStates(value) : undefined;
      return this.#setFilter(omitUndefined({ ...this.#filter, [field]: states ?? value }));
    } catch (error) {
      this.#prompt = { field, typed, error: errorMessage(error) };
      return "line";
    }
  }

  #setFilter(filter: TaskFilter): "tasks" {
    this.#filter = filter;
    this.#prompt = null;
    this.#scroll = "newest";
    return "tasks";
  }
}

/** Returns how far the key scrolls. The keys are those of `less`, except for its letter g. */
function scrollOf(name: string, rows: number): Scroll {
  const page = Math.max(1, rows - 1);
  switch (name) {
    case "down":
    case "j":
      return 1;
    case "up":
    case "k":
      return -1;
    case "pagedown":
    case "space":
    case "ctrl-f":
      return page;
    case "pageup":
    case "b":
    case "ctrl-b":
      return -page;
    case "home":
      return "newest";
    case "end":
      return "oldest";
    default:
      return 0;
  }
}
