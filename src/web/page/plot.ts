import { html } from "htm/preact";
import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import UPlot from "uplot";
import { theme } from "./theme.js";

export interface Line {
  readonly label: string;
  /** A custom property of the style sheet. */
  readonly color: string;
  readonly values: readonly (number | null)[];
  readonly filled?: boolean;
  /** With a dot for each value, where many are missing. */
  readonly dots?: boolean;
}

const heightPx = 132;

/** Numbers over time, redrawn in place when they change. */
export function Plot(props: {
  title: string;
  /** Seconds since 1970. */
  at: readonly number[];
  lines: readonly Line[];
  show: (value: number) => string;
  /** Where the axis ends at least. */
  least: number;
}): VNode {
  const { title, at, lines, show, least } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  const data: UPlot.AlignedData = [[...at], ...lines.map(({ values }) => [...values])];
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const drawn = new UPlot(options(element, lines, show, least), data, element);
    plot.current = drawn;
    const resized = new ResizeObserver(() =>
      drawn.setSize({ width: element.clientWidth, height: heightPx }),
    );
    resized.observe(element);
    return () => {
      resized.disconnect();
      drawn.destroy();
    };
  }, [theme.value, lines.map(({ label }) => label).join()]);
  useEffect(() => plot.current?.setData(data));
  const last = lines.map(({ label, values }) => {
    const value = values.findLast((each) => each !== null);
    return { label, text: value === undefined || value === null ? "–" : show(value) };
  });
  const words = last.map(({ label, text }) => `${label} ${text}`).join(", ");
  return html`<figure class="plot panel">
    <figcaption>
      <h3>${title}</h3>
      <span class="legend">
        ${lines.map(
          ({ label, color }, index) =>
            html`<span key=${label}
              ><i class=${`key ${color.slice(2)}`}></i>${label} <b>${last[index]?.text}</b></span
            >`,
        )}
      </span>
    </figcaption>
    <div ref=${place} role="img" aria-label=${`${title}: ${words}`}></div>
  </figure>`;
}

function options(
  element: HTMLElement,
  lines: readonly Line[],
  show: (value: number) => string,
  least: number,
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
    // Room for the half of a time that stands at the very end.
    padding: [8, 18, 0, 0],
    cursor: { y: false, points: { size: 5 } },
    legend: { show: false },
    scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.1, least)] } },
    axes: [
      { ...axis, space: 70, size: 22, values: (_, ticks) => ticks.map(clock) },
      { ...axis, size: 52, space: 28, values: (_, ticks) => ticks.map(show) },
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

const two = (value: number): string => String(value).padStart(2, "0");

function clock(seconds: number): string {
  const date = new Date(seconds * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}`;
}
