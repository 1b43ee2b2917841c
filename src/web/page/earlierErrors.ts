import { html } from "htm/preact";
import type { VNode } from "preact";
import { firstLine } from "../../shared/firstLine.js";
import { printableLine, printableText } from "../../shared/printable.js";
import { readTryErrors } from "../../shared/tryErrors.js";
import type { FullTask } from "../api/taskSchemas.js";
import { waitsForRetry } from "./taskTimes.js";
import { Time } from "./parts.js";

/** Shows the errors of the tries before the one whose results the page shows, the oldest first as in `show`. */
export function EarlierErrors({ task }: { task: FullTask }): VNode | null {
  const errors = readTryErrors(task.columns["errors"]) ?? [];
  const earlier = waitsForRetry(task) ? errors.slice(0, -1) : errors;
  if (earlier.length === 0) return null;
  return html`<section>
    <h2>Errors of earlier attempts</h2>
    <ul class="panel errors">
      ${earlier.map(
        ({ stop, sqlstate, error }) =>
          html`<li key=${stop}>
            <details>
              <summary><${Time} at=${stop} /> <b>${sqlstate}</b> ${printableLine(firstLine(error))}</summary>
              <pre tabindex="0" aria-label=${`Error of the attempt that ended at ${stop}`}>${printableText(error)}</pre>
            </details>
          </li>`,
      )}
    </ul>
  </section>`;
}
