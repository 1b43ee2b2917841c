import { html } from "htm/preact";
import type { VNode } from "preact";
import { printableLine } from "../../shared/printable.js";

/** A link to the tasks of a group. */
export function GroupLink({ table, group }: { table: string; group: string | null }): VNode | null {
  if (group === null) return null;
  const name = group === "" ? "(empty)" : printableLine(group);
  return html`<a class="group" title=${name} href=${`/tables/${table}/tasks?group=${encodeURIComponent(group)}`}
    >${name}</a
  >`;
}
