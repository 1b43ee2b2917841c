import { html } from "htm/preact";
import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import type { DependencyGraph, DependencyNode } from "../../tasks/queries/dependencyGraph.js";
import { numberText } from "./format.js";
import { layoutGraph, nextColumnKey, type Layout, type Line, type MoreBox, type NodeBox } from "./graphLayout.js";
import { PanZoom } from "./panZoom.js";
import { useResource } from "./resource.js";
import { printableLine, printableText } from "../../shared/printable.js";
import { StaleNotice, StateBadge } from "./parts.js";

const pendingStates: ReadonlySet<string> = new Set(["PLAN", "TAKE", "WORK"]);

/** In px. */
const captionHeight = 24;

/** Shows nothing if there is nothing. */
export function Dependencies({ table, id, ended }: { table: string; id: string; ended: boolean }): VNode | null {
  const resource = useResource<DependencyGraph>(`/tables/${table}/tasks/${id}/dependencies`, {
    table,
    isFinal: ({ nodes }) => ended && !nodes.some(({ state }) => pendingStates.has(state ?? "")),
  });
  const { value, problem } = resource;
  const [task] = value?.nodes ?? [];
  const isAlone =
    task === undefined || (value?.nodes.length === 1 && task.morePredecessors + task.moreDependents === 0);
  if (isAlone && problem === null && value?.formerComplete !== false) return null;
  return html`<section>
    <div class="row">
      <h2>Dependencies</h2>
      <small>${task !== undefined && summaryText(task)}</small>
      <span class="gap"></span>
      ${!isAlone && legend}
    </div>
    <${StaleNotice} of=${resource} />
    ${!isAlone && value !== null && html`<${Drawing} table=${table} id=${id} graph=${value} />`}
    ${value?.formerComplete === false && html`<p class="note">There may be more tasks that have waited for it: not all newer rows were searched.</p>`}
  </section>`;
}

const legend = html`<span class="legend" aria-hidden="true">
  <span><i class="key" style=${{ background: "var(--done)" }}></i>done</span>
  <span><i class="key" style=${{ background: "var(--fail)" }}></i>not done</span>
  <span><i class="key waits"></i>waited for</span>
</span>`;

function summaryText({ predecessors, waitsFor }: DependencyNode): string {
  if (predecessors === 0) return "";
  const tasks = predecessors === 1 ? "1 task" : `${numberText(predecessors)} tasks`;
  return waitsFor === 0 ? `after ${tasks}` : `waits for ${numberText(waitsFor)} of ${tasks}`;
}

/** The lines are only for the eye: the label of each link says what its task waits for. */
function Drawing({ table, id, graph }: { table: string; id: string; graph: DependencyGraph }): VNode {
  const layout = useMemo(() => layoutGraph(graph, id), [graph, id]);
  const middle = layout.boxes.find(({ node }) => node.id === id);
  const marks = [
    ...layout.boxes.map(({ node, ...place }) => ({ ...place, key: node.id, class: `s-${node.state ?? ""}` })),
    ...layout.more.map(({ key, x, y, width, height }) => ({ key, x, y, width, height, class: "" })),
  ].map((mark) => ({ ...mark, y: mark.y + captionHeight }));
  return html`<div class="graph">
    <${PanZoom}
      label=${`Dependencies of task ${id}`}
      width=${layout.width}
      height=${layout.height + captionHeight}
      middle=${middle}
      marks=${marks}
    >
      ${middle !== undefined && captions(layout, middle)}
      <svg class="lines" width=${layout.width} height=${layout.height} aria-hidden="true">
        ${layout.lines.toSorted(byImportance).map(lineView)}
      </svg>
      <ul aria-label=${`Dependencies of task ${id}`}>
        ${layout.boxes.map((box) => boxView(table, box, id, layout))}
        ${layout.more.map((box) => moreView(table, box, middle))}
      </ul>
    <//>
  </div>`;
}

/** Shows a box that stands for several tasks. If the list can show those that wait for the task, it is a link. */
function moreView(table: string, box: MoreBox, middle: NodeBox | undefined): VNode {
  const { key, count, exact } = box;
  const text = `and ${exact ? "" : "up to "}${numberText(count)} more`;
  const isListed = middle !== undefined && key === nextColumnKey && pendingStates.has(middle.node.state ?? "");
  return html`<li key=${key} class="more" style=${placeOf(box)}>
    ${isListed ? html`<a href=${`/tables/${table}/tasks?waitingFor=${middle.node.id}`}>${text}</a>` : text}
  </li>`;
}

const placeOf = ({ x, y, width, height }: MoreBox | NodeBox): object => ({
  left: `${x}px`,
  top: `${y + captionHeight}px`,
  width: `${width}px`,
  height: `${height}px`,
});

function captions({ boxes, more }: Layout, middle: NodeBox): VNode[] {
  const columns = [...boxes, ...more].map(({ x }) => x);
  return [
    { text: "Predecessors", x: Math.max(...columns.filter((x) => x < middle.x)) },
    { text: "Dependents", x: Math.min(...columns.filter((x) => x > middle.x)) },
  ].flatMap(({ text, x }) =>
    Number.isFinite(x)
      ? [html`<h3 key=${text} style=${{ left: `${x}px`, width: `${middle.width}px` }}>${text}</h3>`]
      : [],
  );
}

/** Lines of later statuses are drawn above the others. */
const statuses = ["over", "done", "waits", "failed"];
const byImportance = (a: Line, b: Line): number => statuses.indexOf(a.status ?? "") - statuses.indexOf(b.status ?? "");

function lineView({ from, to, status, path, x, y }: Line): VNode {
  return html`<g key=${`${from} ${to}`} class=${`line ${status ?? ""}`}>
    <path d=${path} />
    <polygon points=${`${x - 7},${y - 4} ${x},${y} ${x - 7},${y + 4}`} />
  </g>`;
}

function boxView(table: string, box: NodeBox, current: string, layout: Layout): VNode {
  const { id, state, upon, input, error } = box.node;
  const condition = upon === null || upon === "done" ? null : `upon ${upon}`;
  const headline = (state === "PLAN" ? null : error?.replace(/^ERROR:\s+/, "")) ?? input ?? "";
  // Only read by screen readers. Everyone else sees the lines, and the rest when the pointer rests on the box.
  const unseen = [predecessorText(box.node, layout), headline === input ? null : input]
    .filter((text) => text !== null)
    .map((text) => `, ${printableText(text)}`);
  const about = [condition, predecessorText(box.node, layout), input, error]
    .filter((text) => text !== null)
    .map(printableText);
  const content = html`<span class="top">
      ${state === null ? html`<span class="state">no row</span>` : html`<${StateBadge} task=${{ state, ready: null }} />`}
      ${" "}<b>${id}</b>
      ${condition !== null && html`<span class="tag">${condition}</span>`}
    </span>
    <span class="hidden">${unseen.join("")}: </span>
    <span class=${headline === input ? "sql" : "failed"}>${printableLine(headline)}</span>`;
  return html`<li key=${id} style=${placeOf(box)} title=${about.join("\n")}>
    ${
      state === null
        ? html`<div class="box">${content}</div>`
        : html`<a
            class=${`box s-${state}`}
            href=${`/tables/${table}/tasks/${id}`}
            aria-current=${id === current ? "page" : undefined}
            >${content}</a
          >`
    }
  </li>`;
}

function predecessorText({ id, predecessors, waitsFor }: DependencyNode, { boxes, lines }: Layout): string | null {
  if (predecessors === 0) return null;
  const from = new Set(lines.filter((line) => line.to === id).map((line) => line.from));
  const drawn = boxes.flatMap(({ node }) => (from.has(node.id) ? [node.id] : []));
  const others = predecessors - drawn.length;
  const names = [...drawn, ...(others > 0 ? [`${numberText(others)} more`] : [])].join(", ");
  return waitsFor === 0
    ? `after ${names}`
    : `waits for ${numberText(waitsFor)} of ${numberText(predecessors)}: ${names}`;
}
