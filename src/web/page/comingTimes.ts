import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { localText, relativeTimeText, wallText } from "./format.js";
import { typingMs } from "./parts.js";
import { useResource } from "./resource.js";
import type { RuleTimes } from "../../tasks/queries/schedules.js";

/** The next times of a rule while it is being typed, or what is wrong with it. */
export function ComingTimes({ table, rule, zone }: { table: string; rule: string; zone: string }): VNode | null {
  const [asked, setAsked] = useState({ rule, zone });
  useEffect(() => {
    const timer = setTimeout(() => setAsked({ rule, zone }), typingMs);
    return () => clearTimeout(timer);
  }, [rule, zone]);
  if (rule.trim() === "") return null;
  return html`<div class="coming" role="status">
    ${isQuery(rule) ? html`<p class="note">The query returns the next time when the run ends.</p>` : asked.rule.trim() !== "" && html`<${Times} table=${table} ...${asked} />`}
  </div>`;
}

/** As the server's function `task_rule_kind` tells it. */
const isQuery = (rule: string): boolean =>
  /^(?:\s|\(|--[^\n]*\n|\/\*.*?\*\/)*(?:select|with|values|table)\b/i.test(rule);

const ruleExamples =
  "Examples: 30 7 * * 1-5 is 07:30 on weekdays (minute, hour, day, month, weekday), and FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=18;BYMINUTE=0;BYSECOND=0 is 18:00 on the last Friday.";

const count = 5;

function Times({ table, rule, zone }: { table: string; rule: string; zone: string }): VNode | null {
  const query = new URLSearchParams({
    rule,
    count: String(count),
    ...(zone.trim() === "" ? {} : { zone: zone.trim() }),
  });
  const { value, problem, busy } = useResource<RuleTimes>(`/tables/${table}/next?${query.toString()}`, { table: "" });
  if (problem !== null && !busy) return html`<p class="problem">${problem}. ${ruleExamples}</p>`;
  if (value === null) return null;
  if (value.times.length === 0) return html`<p class="problem">This rule has no further time.</p>`;
  return html`<p class="note">Next times in the zone ${value.zone}:</p>
    <ol>
      ${value.times.map((time) => html`<li key=${time.at}>${wallText(time.wall)}${" "}<small>${moreText(time)}</small></li>`)}
    </ol>`;
}

function moreText({ at, wall, note }: RuleTimes["times"][number]): string {
  const local = wallText(wall) === localText(at) ? "" : `, ${localText(at)} in your time zone`;
  return `${relativeTimeText(at)}${local}${note === null ? "" : `; ${note}`}`;
}
