import { html } from "htm/preact";
import type { VNode } from "preact";
import { useRef, useState } from "preact/hooks";
import type { AddedTask, TaskProblems } from "../api/changeSchemas.js";
import type { ColumnsInfo } from "../api/schemas.js";
import type { FullTask, TaskDetail } from "../api/taskSchemas.js";
import { mayChange, postJson, problemText, RequestError } from "./apiClient.js";
import { ComingTimes } from "./comingTimes.js";
import { announce } from "./dialog.js";
import { useDraft, type Start } from "./draft.js";
import { focusMainSoon } from "./focus.js";
import { problemOf, Problems, useFormProblems, type Problem } from "./formProblems.js";
import { useResource } from "./resource.js";
import { navigate } from "./router.js";
import {
  FieldView,
  mainFields,
  moreFields,
  prefillFrom,
  scheduleFields,
  valueOfField,
  type Field,
  type Prefill,
} from "./taskFields.js";
import { toIso } from "./format.js";
import { Alert } from "./parts.js";

type Column = ColumnsInfo["columns"][number];

/**
 * Shows the form that adds a task. With `from` in the query, it is filled with the options of another task, and with
 * `schedule`, it asks for a schedule.
 */
export function AddTaskView({ id, query }: { id: string; query: URLSearchParams }): VNode {
  const from = query.get("from");
  const isSchedule = query.has("schedule");
  // A change of the table does not change what the user is editing.
  const { value, problem } = useResource<ColumnsInfo>(`/tables/${id}/columns`, { table: "" });
  return html`<main id="main" class="add">
    <h1>
      ${from === null ? `Add a ${isSchedule ? "schedule" : "task"}` : html`Add a copy of task <a href=${`/tables/${id}/tasks/${from}`}>${from}</a>`}
    </h1>
    ${problem !== null && html`<${Alert} text=${problem} />`}
    ${value !== null && !mayChange.value && html`<p class="notice">This token only allows to read. It cannot add tasks.</p>`}
    ${value !== null && mayChange.value && from === null && html`<${TaskForm} id=${id} columns=${value.columns} task=${null} group=${query.get("group") ?? ""} isSchedule=${isSchedule} />`}
    ${value !== null && mayChange.value && from !== null && html`<${FormFromTask} id=${id} columns=${value.columns} from=${from} />`}
  </main>`;
}

function FormFromTask({ id, columns, from }: { id: string; columns: readonly Column[]; from: string }): VNode | null {
  const { value, problem } = useResource<TaskDetail>(`/tables/${id}/tasks/${encodeURIComponent(from)}`, { table: "" });
  if (value !== null)
    return html`<${TaskForm} id=${id} columns=${columns} task=${value.task} group="" isSchedule=${false} />`;
  return problem === null ? null : html`<${Alert} text=${problem} />`;
}

function TaskForm(props: {
  id: string;
  columns: readonly Column[];
  task: FullTask | null;
  group: string;
  isSchedule: boolean;
}): VNode {
  const { id, columns, task, group, isSchedule } = props;
  const subjects = subjectsOf(columns);
  const fields = subjects.flatMap((subject) => subject.fields);
  const prefill = (withSchedule: boolean): Prefill =>
    task === null
      ? { texts: group === "" ? {} : { group }, copied: [] }
      : prefillFrom(task, fields, columns, withSchedule);
  const draft = useDraft(`${id} ${task?.id ?? ""}`, () => ({ ...prefill(false), start: { kind: "now", when: "" } }));
  const { texts, copied, start } = draft.content;
  const isTold = (...names: string[]): boolean => names.some((name) => (texts[name] ?? "") !== "");
  const isUsed = ({ name }: Field): boolean => copied.includes(name) || isTold(name);
  const [isOpen, setIsOpen] = useState(() => subjects.slice(1).some((subject) => subject.fields.some(isUsed)));
  const busy = useRef(false);
  const form = useRef<HTMLFormElement>(null);
  const problems = useFormProblems(form, () => setIsOpen(true));
  const edit = (name: string, changes: Parameters<typeof draft.change>[0]): void => {
    draft.change(changes);
    problems.noteEdit(name);
  };

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (busy.current) return;
    busy.current = true;
    const { body, problems: found } = bodyOf(fields, { texts, copied }, { task, start });
    if (isSchedule && !isTold("rule", "repeat")) {
      found.push({ field: "rule", text: "Enter when it runs: a rule, or an interval in repeat." });
    }
    try {
      if (found.length > 0) {
        // The server says what is wrong with the other values.
        const { errors } = await postJson<TaskProblems>(`/tables/${id}/tasks/check`, body);
        const more = errors.map((error) => problemOf(fields, error));
        problems.show([...found, ...more.filter(({ field }) => !found.some((each) => each.field === field))]);
      } else {
        const added = await postJson<AddedTask>(`/tables/${id}/tasks`, body);
        draft.discard();
        announce(`Task ${added.id} added.`);
        navigate(`/tables/${id}/tasks/${added.id}`);
        focusMainSoon();
      }
    } catch (error) {
      const errors = error instanceof RequestError ? error.errors.map((each) => problemOf(fields, each)) : [];
      problems.show(errors.length > 0 ? errors : [...found, { field: null, text: problemText(error) }]);
    }
    busy.current = false;
  };
  const copySchedule = (): void => {
    draft.change(prefill(true));
    setIsOpen(true);
    // The button is gone with its notice.
    requestAnimationFrame(() => document.querySelector<HTMLElement>("#field-rule")?.focus());
  };
  const clear = (): void => {
    draft.discard();
    problems.show([]);
  };
  const problemAt = (name: string): string | null => problems.list.find(({ field }) => field === name)?.text ?? null;
  const view = (field: Field): VNode =>
    html`<${FieldView}
      key=${field.name}
      field=${field}
      default=${columns.find(({ name }) => name === field.name)?.default ?? null}
      text=${texts[field.name] ?? ""}
      copiedFrom=${copied.includes(field.name) ? task?.id : null}
      problem=${problemAt(field.name)}
      change=${(text: string) => edit(field.name, { copied: copied.filter((name) => name !== field.name), texts: { ...texts, [field.name]: text } })}
    />`;
  const fieldsView = (shown: readonly Field[]): VNode => html`<div class="fields">${shown.map(view)}</div>`;
  const subjectView = ({ title, fields: [...own] }: Subject): VNode =>
    html`<fieldset key=${title}>
      <legend>${title}</legend>
      ${title === "Schedule" && html`${fieldsView(own.splice(0, 2))}<${ComingTimes} table=${id} rule=${texts["rule"] ?? ""} zone=${texts["zone"] ?? ""} />`}
      ${fieldsView(own)}
    </fieldset>`;
  const [main, ...more] = subjects;
  const asked = isSchedule ? more.splice(0, 1) : [];
  const hasSchedule = task !== null && (task.rule !== null || task.repeat !== null);
  const takesSchedule = isTold(...scheduleFields);
  return html`<form class="panel" ref=${form} novalidate onSubmit=${(event: Event) => void submit(event)}>
    <${Problems} problems=${problems.list} />
    ${draft.isRestored && html`<p class="notice">This form still has what you have entered, until the task is added.</p>`}
    ${hasSchedule && !takesSchedule && html`<${ScheduleNotice} task=${task} copy=${copySchedule} />`}
    ${main?.fields.slice(0, 2).map(view)} ${asked.map(subjectView)}
    <${StartFields}
      start=${start}
      hasRule=${isTold("rule")}
      problem=${problemAt("plan")}
      change=${(to: Start) => edit("plan", { start: to })}
    />
    ${fieldsView(main?.fields.slice(2) ?? [])}
    <details
      open=${isOpen}
      onToggle=${(event: Event) => event.target instanceof HTMLDetailsElement && setIsOpen(event.target.open)}
    >
      <summary>More options</summary>
      ${more.map(subjectView)}
    </details>
    <div class="answers">
      <button class="primary">${isSchedule ? "Add schedule" : "Add task"}</button>
      <a
        class="button"
        href=${`/tables/${id}/${isSchedule ? "schedules" : "tasks"}${task === null ? "" : `/${task.id}`}`}
        >Cancel</a
      >
      ${draft.isKept && html`<button type="button" class="quiet" onClick=${clear}>Clear form</button>`}
    </div>
  </form>`;
}

function ScheduleNotice({ task, copy }: { task: FullTask; copy: () => void }): VNode {
  return html`<p class="notice">
    This adds one run. The schedule of task ${task.id} is not copied, because the task would run twice at each
    time.${" "}
    <button type="button" onClick=${copy}>Copy the schedule as well</button>
  </p>`;
}

const startKinds = { now: "at once", delay: "after an interval", at: "at a time" } as const;

function StartFields(props: {
  start: Start;
  hasRule: boolean;
  problem: string | null;
  change: (start: Start) => void;
}): VNode {
  const { start, hasRule, problem, change } = props;
  const { kind, when } = start;
  const choose = ({ target }: Event): void => {
    if (!(target instanceof HTMLSelectElement)) return;
    const { value } = target;
    change({ kind: value === "delay" || value === "at" ? value : "now", when: "" });
  };
  const edit = ({ target }: Event): void => {
    if (target instanceof HTMLInputElement) change({ kind, when: target.value });
  };
  return html`<fieldset class="when">
    <legend>Start</legend>
    <select name="start" aria-label="Start" value=${kind} onChange=${choose}>
      ${Object.entries(startKinds).map(([value, label]) => html`<option key=${value} value=${value}>${value === "now" && hasRule ? "at the next time of its rule" : label}</option>`)}
    </select>
    ${
      kind !== "now" &&
      html`<input
        key=${kind}
        name="plan"
        type=${kind === "at" ? "datetime-local" : "text"}
        step="1"
        placeholder=${kind === "at" ? "" : "5 minutes"}
        aria-label=${kind === "at" ? "Time, in your time zone" : "Interval"}
        aria-invalid=${problem !== null}
        aria-describedby=${problem === null ? undefined : "field-plan-problem"}
        value=${when}
        onInput=${edit}
      />`
    }
    ${problem !== null && html`<small id="field-plan-problem" class="problem">${problem}</small>`}
  </fieldset>`;
}

interface Subject {
  readonly title: string;
  readonly fields: readonly Field[];
}

function subjectsOf(columns: readonly Column[]): Subject[] {
  const known = new Set(columns.filter(({ own }) => !own).map(({ name }) => name));
  const own = columns.filter((column) => column.own);
  return [
    { title: "Task", fields: mainFields },
    ...moreFields,
    {
      title: "Your own columns",
      fields: own.map(({ name, type }): Field => ({ name, kind: "text", hint: type, own: true })),
    },
  ]
    .map(({ title, fields }) => ({
      title,
      fields: fields.filter(({ name, own: isOwn }) => isOwn === true || known.has(name)),
    }))
    .filter(({ fields }) => fields.length > 0);
}

/** The body has only the values that are not already known to be wrong. */
function bodyOf(
  fields: readonly Field[],
  { texts, copied }: Prefill,
  { task, start: { kind, when } }: { readonly task: FullTask | null; readonly start: Start },
): { readonly body: object; readonly problems: Problem[] } {
  const body: Record<string, unknown> = {};
  const own: Record<string, unknown> = {};
  const problems: Problem[] = [];
  for (const field of fields) {
    const text = texts[field.name] ?? "";
    if (text === "" || copied.includes(field.name)) continue;
    const value = valueOfField(field, text);
    if (value instanceof Error) problems.push({ field: field.name, text: value.message });
    else (field.own === true ? own : body)[field.name] = value;
  }
  if (!("input" in body) && !copied.includes("input")) {
    problems.unshift({ field: "input", text: "Enter the SQL to run." });
  }
  if (kind !== "now") {
    const plan = kind === "at" ? toIso(when) : when.trim();
    if (plan === "") problems.push({ field: "plan", text: "Enter when it starts." });
    else body[kind === "at" ? "plan" : "delay"] = plan;
  }
  if (Object.keys(own).length > 0) body["columns"] = own;
  if (task !== null && copied.length > 0) body["copy"] = { id: task.id, columns: copied };
  return { body, problems };
}
