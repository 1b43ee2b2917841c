import { html } from "htm/preact";
import type { VNode } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import UPlot from "uplot";
import { axisLabels, roundAxis, type Unit } from "./plotAxis.js";
import { loneIndexes, splitLast, withGaps } from "./plotGaps.js";
import { navigate } from "./router.js";
import { theme } from "./theme.js";

export interface Line {
  readonly label: string;
  /** A custom property of the style sheet. */
  readonly color: string;
  readonly values: readonly (number | null)[];
  readonly filled?: boolean;
  /** Whether each value is a dot. */
  readonly dots?: boolean;
}

const heightPx = 132;

interface PlotProps {
  title: string;
  /** In seconds since 1970. */
  at: readonly number[];
  /** The time of a point as text. */
  timeOf: (at: number) => string;
  /** The address of the tasks of a point. */
  linkOf: (at: number) => string;
  lines: readonly Line[];
  format: (value: number) => string;
  unit: Unit;
  /** The top of the axis is at least this. */
  minTop: number;
  /** So many unknown values in a row are drawn over. */
  bridged?: number;
  /** Whether the last point's time is not over yet: its lines are dashed. */
  isPartial?: boolean;
  empty?: string;
}

/** The pointer or the arrow keys choose a point: its values are shown in all plots, and its time where it was chosen. */
export function Plot(props: PlotProps): VNode {
  const { title, at, lines, format, timeOf, empty = "No values yet." } = props;
  const hasValues = lines.some(({ values }) => values.some((value) => value !== null));
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  const [chosen, setChosen] = useState<number | null>(null);
  const [isActive, setIsActive] = useState(false);
  const before = useRef<number | null>(null);
  const data = dataOf(props);
  // Before the reader can press a key.
  useLayoutEffect(() => {
    const element = container.current;
    if (element === null) return undefined;
    const created = new UPlot(plotOptions(element, props, setChosen), data, element);
    plot.current = created;
    const observer = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height: heightPx }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      created.destroy();
    };
  }, [theme.value, lines.map(({ label }) => label).join()]);
  useLayoutEffect(() => plot.current?.setData(data), [at, lines]);
  const point = chosen === null ? undefined : at[chosen];
  const shown = lines.map(({ label, values }) => {
    const value = point === undefined ? values.findLast((each) => each !== null) : values[chosen ?? 0];
    return { label, text: value === undefined || value === null ? "–" : format(value) };
  });
  const description = shown.map(({ label, text }) => `${label} ${text}`).join(", ");
  const left = point === undefined ? 0 : (plot.current?.valToPos(point, "x") ?? 0) + yAxisPx;
  return html`<figure class="plot panel">
    <figcaption>
      <h3>${title}</h3>
      <span class="legend">
        ${lines.map(
          ({ label, color }, index) =>
            html`<span key=${label}
              ><i class="key" style=${{ background: `var(${color})` }}></i>${label} <b>${shown[index]?.text}</b></span
            >`,
        )}
      </span>
    </figcaption>
    <div
      class="canvas"
      ref=${container}
      ...${hasValues ? sliderOf(props, plot, { chosen, before, description }) : { role: "img", "aria-label": `${title}: ${empty}` }}
      onPointerEnter=${() => setIsActive(true)}
      onPointerLeave=${({ pointerType }: PointerEvent) => pointerType !== "touch" && setIsActive(false)}
      onFocus=${() => setIsActive(true)}
      onBlur=${() => setIsActive(false)}
    >
      ${point !== undefined && isActive && hasValues && html`<span class="chosen" style=${{ left: `clamp(80px, ${left}px, calc(100% - 80px))` }}>${timeOf(point)}</span>`}
    </div>
    ${!hasValues && html`<p class="nothing">${empty}</p>`}
  </figure>`;
}

function dataOf({ at, lines, bridged = 0, isPartial = false }: PlotProps): UPlot.AlignedData {
  const split = lines.map(({ values }) => (isPartial ? splitLast(values) : ([values, []] as const)));
  const drawn = split.map(([earlier]) => [...withGaps(earlier, bridged)]);
  return [[...at], ...drawn, ...(isPartial ? split.map(([, last]) => [...last]) : [])];
}

const keySteps: Readonly<Record<string, number>> = {
  ArrowLeft: -1,
  ArrowRight: 1,
  PageDown: -10,
  PageUp: 10,
  Home: -Infinity,
  End: Infinity,
};

interface Choice {
  /** Index of the chosen point. */
  readonly chosen: number | null;
  /** What was chosen when the pointer went down. */
  readonly before: { current: number | null };
  readonly description: string;
}

/** What makes a plot a slider over its points. Enter and a click lead to the tasks of the chosen one. */
function sliderOf(
  { title, at, timeOf, linkOf }: PlotProps,
  plot: { readonly current: UPlot | null },
  { chosen, before, description }: Choice,
): object {
  const point = chosen === null ? undefined : at[chosen];
  const last = at.length - 1;
  const open = (): void => {
    if (point !== undefined) navigate(linkOf(point));
  };
  const press = (event: KeyboardEvent): void => {
    const step = keySteps[event.key];
    if (event.key === "Enter") open();
    if (step === undefined || plot.current === null) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(last, (chosen ?? last + 1) + step));
    setCursor(plot.current, plot.current.valToPos(at[next] ?? 0, "x"));
  };
  return {
    tabindex: 0,
    role: "slider",
    "aria-label": `${title}. Enter shows the tasks`,
    "aria-valuemin": 0,
    "aria-valuemax": last,
    "aria-valuenow": chosen ?? last,
    "aria-valuetext": point === undefined ? description : `${timeOf(point)}: ${description}`,
    onKeyDown: press,
    onPointerDown: () => {
      before.current = chosen;
    },
    // A finger cannot hover: its first tap shows the values, and the second one leads on.
    onClick: (event: PointerEvent) => {
      if (event.pointerType !== "touch" || before.current === chosen) open();
    },
  };
}

/** The declared type lacks the last argument, with which the cursors of the other plots move, too. */
interface Movable {
  setCursor(at: { left: number; top: number }, fireHook?: boolean, publish?: boolean): void;
}

const setCursor = (plot: Movable, left: number): void => plot.setCursor({ left, top: 10 }, true, true);

/** Width of the axis of values, in px. */
const yAxisPx = 62;

function plotOptions(
  element: HTMLElement,
  { lines, format, unit, minTop, isPartial = false }: PlotProps,
  choose: (index: number | null) => void,
): UPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const axis = {
    stroke: color("--faint"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: element.clientWidth,
    height: heightPx,
    // The padding leaves space for the second half of the label at the right end of the axis.
    padding: [8, 18, 0, 0],
    cursor: { y: false, points: { size: 5 }, drag: { x: false, y: false }, sync: { key: "over time" } },
    hooks: { setCursor: [({ cursor: { idx } }) => choose(idx ?? null)] },
    legend: { show: false },
    scales: { y: { range: (_, __, max) => [0, roundAxis(Math.max(max, minTop), unit).top] } },
    axes: [
      { ...axis, space: 70, size: 22, values: (_, ticks) => timeLabels(ticks) },
      {
        ...axis,
        size: yAxisPx,
        // The top of the axis is a multiple of the distance, so the same distance results.
        splits: (_, __, ___, max) => axisLabels(roundAxis(max, unit)),
        values: (_, ticks) => ticks.map(format),
      },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        ...seriesOf(line, color),
        fill: line.filled === true ? `${color(line.color)}22` : "",
      })),
      ...(isPartial ? lines.map((line) => ({ ...seriesOf(line, color), dash: [4, 4] })) : []),
    ],
  };
}

const seriesOf = ({ label, color, dots = false }: Line, valueOf: (color: string) => string): UPlot.Series => ({
  label,
  stroke: valueOf(color),
  width: 1.5,
  points: {
    show: dots,
    size: 4,
    filter: (plot, series) => (dots ? null : loneIndexes([...(plot.data[series] ?? [])])),
  },
});

const twoDigits = (value: number): string => String(value).padStart(2, "0");

const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Midnight is shown as the date. */
const timeLabels = (ticks: readonly number[]): string[] =>
  ticks.map((seconds) => {
    const date = new Date(seconds * 1000);
    const clock = `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
    return clock === "00:00" ? day.format(date) : clock;
  });
