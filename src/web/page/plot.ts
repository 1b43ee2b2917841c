import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import UPlot from "uplot";
import { axisLabels, roundAxis, type Unit } from "./plotAxis.js";
import { theme } from "./theme.js";

export interface Line {
  readonly label: string;
  /** A custom property of the style sheet. */
  readonly color: string;
  readonly values: readonly (number | null)[];
  readonly filled?: boolean;
  /** Suits series with many gaps. */
  readonly dots?: boolean;
}

const heightPx = 132;

interface PlotProps {
  title: string;
  /** In seconds since 1970. */
  at: readonly number[];
  lines: readonly Line[];
  format: (value: number) => string;
  unit: Unit;
  /** The top of the axis is at least this. */
  minTop: number;
  empty?: string;
}

export function Plot(props: PlotProps): VNode {
  const { title, at, lines, format, empty = "No values yet." } = props;
  const hasValues = lines.some(({ values }) => values.some((value) => value !== null));
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  const data: UPlot.AlignedData = [[...at], ...lines.map(({ values }) => [...values])];
  useEffect(() => {
    const element = container.current;
    if (element === null) return undefined;
    const created = new UPlot(plotOptions(element, props), data, element);
    plot.current = created;
    const observer = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height: heightPx }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      created.destroy();
    };
  }, [theme.value, lines.map(({ label }) => label).join()]);
  useEffect(() => plot.current?.setData(data));
  const last = lines.map(({ label, values }) => {
    const value = values.findLast((each) => each !== null);
    return { label, text: value === undefined || value === null ? "–" : format(value) };
  });
  const description = last.map(({ label, text }) => `${label} ${text}`).join(", ");
  return html`<figure class="plot panel">
    <figcaption>
      <h3>${title}</h3>
      <span class="legend">
        ${lines.map(
          ({ label, color }, index) =>
            html`<span key=${label}
              ><i class="key" style=${{ background: `var(${color})` }}></i>${label} <b>${last[index]?.text}</b></span
            >`,
        )}
      </span>
    </figcaption>
    <div class="canvas" ref=${container} role="img" aria-label=${`${title}: ${description}`}></div>
    ${!hasValues && html`<p class="nothing">${empty}</p>`}
  </figure>`;
}

function plotOptions(element: HTMLElement, { lines, format, unit, minTop }: PlotProps): UPlot.Options {
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
    cursor: { y: false, points: { size: 5 } },
    legend: { show: false },
    scales: { y: { range: (_, __, max) => [0, roundAxis(Math.max(max, minTop), unit).top] } },
    axes: [
      { ...axis, space: 70, size: 22, values: (_, ticks) => timeLabels(ticks) },
      {
        ...axis,
        size: 62,
        // The top of the axis is a multiple of the distance, so the same distance results.
        splits: (_, __, ___, max) => axisLabels(roundAxis(max, unit)),
        values: (_, ticks) => ticks.map(format),
      },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: color(line.color),
        width: 1.5,
        points: { show: line.dots === true, size: 4 },
        spanGaps: true,
        ...(line.filled === true ? { fill: `${color(line.color)}22` } : {}),
      })),
    ],
  };
}

const twoDigits = (value: number): string => String(value).padStart(2, "0");

const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Midnight is shown as the date. */
const timeLabels = (ticks: readonly number[]): string[] =>
  ticks.map((seconds) => {
    const date = new Date(seconds * 1000);
    const clock = `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
    return clock === "00:00" ? day.format(date) : clock;
  });
