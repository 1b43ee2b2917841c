import { comparedWith, ratio, type Throughput } from "../measures/ratios.js";
import { subjects } from "../subjects/all.js";
import { works } from "../work.js";

const left = 285;
const width = 900;
const bar = 16;
const gap = 34;
const right = 60;

const style = `
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .own { fill: #0969da; } .other { fill: #8c959f; } .line { stroke: #8c959f; stroke-dasharray: 3 3; }
  .back { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .back { fill: #0d1117; } .own { fill: #4493f8; } .other { fill: #6e7681; } .line { stroke: #6e7681; }
  }`;

/** Returns a bar chart of the ratios, with one block for each kind of work. The dashed line marks the ratio 1. */
export function throughputPlot(raw: Throughput): string {
  const to = comparedWith(raw);
  const blocks = works
    .map((work) => ({
      title: work.title.replaceAll("`", ""),
      bars: subjects.flatMap(({ name, title }) => {
        const value = ratio(raw, work.name, name, to);
        return value === null ? [] : [{ title: title.replaceAll("`", ""), value, own: name.startsWith("pg-task") }];
      }),
    }))
    .filter(({ bars }) => bars.length > 0);
  const maxValue = Math.max(1, ...blocks.flatMap(({ bars }) => bars.map(({ value }) => value)));
  const scale = (value: number): number => (value / maxValue) * (width - left - right);
  let y = 12;
  const parts = blocks.flatMap(({ title, bars }) => {
    const top = y + 14;
    const lines = bars.map((each, i) => {
      const at = top + 8 + i * (bar + 4);
      const x = left + scale(each.value) + 6;
      return `<text x="${left - 8}" y="${at + 12}" text-anchor="end">${escaped(each.title)}</text><rect class="${each.own ? "own" : "other"}" x="${left}" y="${at}" width="${scale(each.value).toFixed(1)}" height="${bar}"/><text x="${x.toFixed(1)}" y="${at + 12}">${each.value.toFixed(2)}</text>`;
    });
    const bottom = top + 8 + bars.length * (bar + 4);
    y = bottom + gap - 14;
    const one = (left + scale(1)).toFixed(1);
    return [
      `<text class="title" x="${left}" y="${top}">${escaped(title)}</text>`,
      ...lines,
      `<line class="line" x1="${one}" x2="${one}" y1="${top + 4}" y2="${bottom}"/>`,
    ];
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${y}" role="img" aria-label="Tasks per second as ratios">`,
    `<style>${style}\n</style>`,
    `<rect class="back" width="${width}" height="${y}"/>`,
    ...parts,
    "</svg>\n",
  ].join("\n");
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
