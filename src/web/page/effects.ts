import { isSome } from "../../shared/count.js";
import { printableLine } from "../../shared/printable.js";
import type { StateChange } from "../../shared/taskState.js";
import type { ChangeEffects } from "../../tasks/queries/changeEffects.js";
import { postJson } from "./apiClient.js";
import { ask } from "./dialog.js";
import { countText } from "./format.js";

/** Asks the server what a change would bring about for other tasks, and whether pauses keep the tasks from starting. */
export const readEffects = async (table: string, change: StateChange, ids: readonly string[]): Promise<ChangeEffects> =>
  await postJson<ChangeEffects>(`/tables/${table}/changes/check`, { change, ids });

interface Confirmation {
  readonly change: StateChange;
  readonly count: number;
  readonly title: string;
  readonly texts: readonly string[];
  readonly confirm: string;
  /** Whether to ask also if the change has no effects of which the user has to know. */
  readonly always: boolean;
}

interface Confirmed {
  readonly withoutWaiting: boolean;
  /** To be added to what came of the change; "" for nothing. */
  readonly note: string;
}

/**
 * Asks whether to make the change. Ends the pause of the tasks if the user wants that, too.
 *
 * @returns null if the user does not want the change
 */
export async function confirmChange(
  table: string,
  effects: ChangeEffects,
  { change, count, title, texts, confirm, always }: Confirmation,
): Promise<Confirmed | null> {
  const more = [...goneTexts(change, effects, count), ...pauseTexts(effects, count)];
  const isPaused = isSome(effects.paused) === true;
  const note = isPaused ? ` Not started yet: ${pausesText(effects)}.` : "";
  if (!always && more.length === 0) return { withoutWaiting: false, note };
  const isUnmet = change === "retry" && count === 1 && isSome(effects.gone) === true;
  const [pause, ...others] = isPaused && !isUnmet ? effects.pauses : [];
  const resume =
    pause === undefined || others.length > 0 ? undefined : `Resume ${pause.group === null ? "table" : "group"} too`;
  const other = isUnmet ? "Retry without waiting" : resume;
  const answer = await ask({ title, text: [...texts, ...more], confirm, other });
  if (answer === null) return null;
  if (answer.choice === "confirm" || pause === undefined) return { withoutWaiting: answer.choice === "other", note };
  await postJson(`/tables/${table}/resume`, { group: pause.group });
  return { withoutWaiting: false, note: "" };
}

function goneTexts(change: StateChange, { gone, causes }: ChangeEffects, count: number): string[] {
  const one = count === 1;
  const isAny = isSome(gone);
  if (isAny === null) return [`Tasks that wait for ${one ? "it" : "them"} become GONE and will not run.`];
  if (!isAny) return [];
  const number = countText(gone);
  if (change !== "retry") {
    const which = gone.value === 1 ? "task that waits" : "tasks that wait";
    return [
      `${number} ${which} for ${one ? "it" : "them"} will not run, but become${gone.value === 1 ? "s" : ""} GONE.`,
    ];
  }
  const ends = causes.map(({ id, state }) => `task ${id} is ${state}`).join(", ");
  const why = ends === "" ? "what it waits for has not ended as it requires" : ends;
  return one
    ? [`It will not run, but become GONE again, because it waits for others: ${why}.`]
    : [`${number} of them will not run, but become GONE again, because they wait for others: ${why}.`];
}

function pauseTexts(effects: ChangeEffects, count: number): string[] {
  const { paused, pauses } = effects;
  if (isSome(paused) !== true) return [];
  const which =
    count === 1 ? "It starts" : paused.value === count ? "They start" : `${countText(paused)} of them start`;
  const pausesEnd = pauses.length === 1 ? "when its pause ends" : "when these pauses end";
  return [`${which} only ${pausesEnd}: ${pausesText(effects)}.`];
}

function pausesText({ pauses }: ChangeEffects): string {
  const names = pauses.map(({ group }) =>
    group === null ? "the whole table" : group === "" ? "the empty group" : `group ${printableLine(group)}`,
  );
  return `${names.join(", ")} ${names.length === 1 ? "is" : "are"} paused`;
}
