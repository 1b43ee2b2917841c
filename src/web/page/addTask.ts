import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { AddedTask } from "../api/changeSchemas.js";
import type { ColumnsInfo } from "../api/schemas.js";
import type { FullTask, TaskDetail } from "../api/taskSchemas.js";
import { postJson, problemText } from "./apiClient.js";
import { announce } from "./dialog.js";
import { focusMainSoon } from "./focus.js";
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

/** Shows the form that adds a task. With `from` in the query, it is filled with the options of another task. */
export function AddTaskView({ id, query }: { id: string; query: URLSearchParams }): VNode {
  const from = query.get("from");
  // A change of the table does not change what the user is editing.
  const { value, problem } = useResource<ColumnsInfo>(`/tables/${id}/columns`, { table: "" });
  return html`<main id="main" class="add">
    <h1>${from === null ? "Add a task" : html`Run task <a href=${`/tables/${id}/tasks/${from}`}>${from}</a> again`}</h1>
    ${problem !== null && html`<${Alert} text=${problem} />`}
    ${value !== null && from === null && html`<${TaskForm} id=${id} columns=${value.columns} task=${null} group=${query.get("group") ?? ""} />`}
    ${value !== null && from !== null && html`<${FormFromTask} id=${id} columns=${value.columns} from=${from} />`}
  </main>`;
}

function FormFromTask({ id, columns, from }: { id: string; columns: readonly Column[]; from: string }): VNode | null {
  const { value, problem } = useResource<TaskDetail>(`/tables/${id}/tasks/${encodeURIComponent(from)}`, { table: "" });
  if (value !== null) return html`<${TaskForm} id=${id} columns=${columns} task=${value.task} group="" />`;
  return problem === null ? null : html`<${Alert} text=${problem} />`;
}

interface Start {
  readonly kind: "now" | "delay" | "at";
  /** The interval, or the value of a `datetime-local` input. */
  readonly when: string;
}

interface Problem {
  readonly text: string;
  /** Null if it is not known. */
  readonly field: string | null;
}

function TaskForm(props: { id: string; columns: readonly Column[]; task: FullTask | null; group: string }): VNode {
  const { id, columns, task, group } = props;
  const subjects = subjectsOf(columns);
  const fields = subjects.flatMap((subject) => subject.fields);
  const prefill = (withSchedule: boolean): Prefill =>
    task === null
      ? { texts: group === "" ? {} : { group }, copied: [] }
      : prefillFrom(task, fields, columns, withSchedule);
  const [{ texts, copied }, setContent] = useState<Prefill>(() => prefill(false));
  const [start, setStart] = useState<Start>({ kind: "now", when: "" });
  const [problem, setProblem] = useState<Problem | null>(null);
  const isUsed = ({ name }: Field): boolean => copied.includes(name) || (texts[name] ?? "") !== "";
  const [isOpen, setIsOpen] = useState(() => subjects.slice(1).some((subject) => subject.fields.some(isUsed)));
  const busy = useRef(false);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (problem === null) return;
    const at = problem.field === null ? null : form.current?.elements.namedItem(problem.field);
    if (!(at instanceof HTMLElement)) return form.current?.querySelector<HTMLElement>(".notice")?.focus();
    // A folded field cannot have the focus.
    const fold = at.closest("details");
    if (fold !== null) fold.open = true;
    at.focus();
  }, [problem]);

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (busy.current) return;
    const body = bodyOf(fields, { texts, copied }, { task, start });
    if ("problem" in body) return setProblem(body.problem);
    busy.current = true;
    try {
      const added = await postJson<AddedTask>(`/tables/${id}/tasks`, body.body);
      announce(`Task ${added.id} added`);
      navigate(`/tables/${id}/tasks/${added.id}`);
      focusMainSoon();
    } catch (error) {
      const text = problemText(error);
      setProblem({ text, field: fieldOf(fields, text) });
    }
    busy.current = false;
  };
  const copySchedule = (): void => {
    setContent(prefill(true));
    setIsOpen(true);
    // The button is gone with its notice.
    requestAnimationFrame(() => document.querySelector<HTMLElement>("#field-rule")?.focus());
  };
  const view = (field: Field): VNode =>
    html`<${FieldView}
      key=${field.name}
      field=${field}
      default=${columns.find(({ name }) => name === field.name)?.default ?? null}
      text=${texts[field.name] ?? ""}
      copiedFrom=${copied.includes(field.name) ? task?.id : null}
      problem=${problem?.field === field.name ? problem.text : null}
      change=${(text: string) => setContent({ copied: copied.filter((name) => name !== field.name), texts: { ...texts, [field.name]: text } })}
    />`;
  const [main, ...more] = subjects;
  const hasSchedule = task !== null && (task.rule !== null || task.repeat !== null);
  const takesSchedule = scheduleFields.some((name) => (texts[name] ?? "") !== "");
  return html`<form class="panel" ref=${form} novalidate onSubmit=${(event: Event) => void submit(event)}>
    ${problem !== null && html`<p class="notice bad" role="alert" tabindex="-1">${problem.text}</p>`}
    ${hasSchedule && !takesSchedule && html`<${ScheduleNotice} task=${task} copy=${copySchedule} />`}
    ${main?.fields.slice(0, 2).map(view)}
    <${StartFields} start=${start} isInvalid=${problem?.field === "plan"} change=${setStart} />
    <div class="fields">${main?.fields.slice(2).map(view)}</div>
    <details
      open=${isOpen}
      onToggle=${(event: Event) => event.target instanceof HTMLDetailsElement && setIsOpen(event.target.open)}
    >
      <summary>More options</summary>
      ${more.map(
        (subject) =>
          html`<fieldset key=${subject.title}>
            <legend>${subject.title}</legend>
            <div class="fields">${subject.fields.map(view)}</div>
          </fieldset>`,
      )}
    </details>
    <div class="answers">
      <button class="primary">Add task</button>
      <a class="button" href=${task === null ? `/tables/${id}/tasks` : `/tables/${id}/tasks/${task.id}`}>Cancel</a>
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

function StartFields(props: { start: Start; isInvalid: boolean; change: (start: Start) => void }): VNode {
  const { start, isInvalid, change } = props;
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
      ${Object.entries(startKinds).map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
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
        aria-invalid=${isInvalid}
        value=${when}
        onInput=${edit}
      />`
    }
  </fieldset>`;
}

function subjectsOf(columns: readonly Column[]): { readonly title: string; readonly fields: readonly Field[] }[] {
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

/** Returns the name of the field that a message of the server begins with, or null. */
function fieldOf(fields: readonly Field[], message: string): string | null {
  const name = /^(?:columns\.)?(\w+)(?:\.\d+)?: /.exec(message)?.[1];
  if (name === undefined) return null;
  return name === "plan" || name === "delay" || fields.some((field) => field.name === name)
    ? name.replace("delay", "plan")
    : null;
}

function bodyOf(
  fields: readonly Field[],
  { texts, copied }: Prefill,
  { task, start: { kind, when } }: { readonly task: FullTask | null; readonly start: Start },
): { readonly body: object } | { readonly problem: Problem } {
  const body: Record<string, unknown> = {};
  const own: Record<string, unknown> = {};
  for (const field of fields) {
    const text = texts[field.name] ?? "";
    if (text === "" || copied.includes(field.name)) continue;
    const value = valueOfField(field, text);
    if (value instanceof Error) return { problem: { field: field.name, text: value.message } };
    (field.own === true ? own : body)[field.name] = value;
  }
  if (!("input" in body) && !copied.includes("input")) {
    return { problem: { field: "input", text: "Enter the SQL to run." } };
  }
  if (kind !== "now") {
    const plan = kind === "at" ? toIso(when) : when.trim();
    if (plan === "") return { problem: { field: "plan", text: "Enter when it starts." } };
    body[kind === "at" ? "plan" : "delay"] = plan;
  }
  if (Object.keys(own).length > 0) body["columns"] = own;
  if (task !== null && copied.length > 0) body["copy"] = { id: task.id, columns: copied };
  return { body };
}
