import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { promisify } from "node:util";
import { files, folders } from "../folders.js";
import type { Recorded } from "../machine.js";
import { measures } from "../measures/all.js";
import { kept, type Result } from "../results.js";
import { markdownTable } from "./text.js";

const run = promisify(execFile);
const begin = "<!-- figures: written by npm run bench -->";
const end = "<!-- end of figures -->";

/** Writes the stored results into bench/results/README.md, between the two markers, and the charts into docs/img. */
export async function writePage(): Promise<void> {
  const results = await kept();
  const page = await readFile(files.page, "utf8");
  const [before, after] = [page.indexOf(begin), page.indexOf(end)];
  if (before < 0 || after < before) {
    throw new Error(`expected the lines ${begin} and ${end} in ${files.page}`);
  }
  const figures = await drawn(results);
  await writeFile(files.page, `${page.slice(0, before)}${begin}\n\n${figures}\n\n${page.slice(after)}`);
  await run("npx", ["oxfmt", files.page, folders.results], { cwd: folders.root });
}

async function drawn(results: ReadonlyMap<string, Result>): Promise<string> {
  const parts = [];
  for (const measure of measures) {
    const result = results.get(measure.name);
    if (result === undefined) continue;
    const { title, note, ...table } = measure.report(result.raw);
    parts.push(`### ${title}`);
    const plot = measure.plot?.(result.raw);
    if (plot !== undefined) {
      await mkdir(folders.images, { recursive: true });
      await writeFile(`${folders.images}${measure.name}.svg`, plot);
      parts.push(`![${title}](../../docs/img/${measure.name}.svg)`);
    }
    parts.push(markdownTable(table), note, origin(result.recorded));
  }
  return parts.length === 0 ? "None yet: `npm run bench` writes them." : parts.join("\n\n");
}

function origin({ at, commit, machine, load, versions, options }: Recorded): string {
  const { cpu, cores, memoryGb, system } = machine;
  const { tasks, rounds, rows, tables, idle, samples, seconds } = options;
  const sizes = Object.entries({ tasks, rounds, rows, tables, idle, samples, seconds })
    // Older results do not have all options.
    .filter(([, value]: [string, number | undefined]) => value !== undefined)
    .map(([name, value]) => `--${name} ${value}`)
    .join(" ");
  const used = Object.entries(versions)
    .filter(([, version]) => version !== "not installed")
    .map(([name, version]) => `${name} ${version}`);
  return `Measured ${at.slice(0, 10)} on commit ${commit}: ${cores} cores (${cpu}), ${memoryGb} GB of memory, ${system}, load average before: ${load}. Versions: ${used.join(", ")}. Options: \`${sizes}\`.`;
}
