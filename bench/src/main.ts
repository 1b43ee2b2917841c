import { commonNode, installPeers } from "./install.js";
import { Databases } from "./database.js";
import { record } from "./machine.js";
import { measures } from "./measures/all.js";
import type { Measure } from "./measures/measure.js";
import { readOptions, usage, type Options } from "./options.js";
import { writePage } from "./report/page.js";
import { markdownTable } from "./report/text.js";
import { keep } from "./results.js";
import { startServer } from "./server.js";
import { subjects as allSubjects } from "./subjects/all.js";
import { pgbenchProgram } from "./subjects/pgbench.js";
import type { Subject } from "./subjects/subject.js";
import { orderWorks } from "./measures/order.js";
import { works } from "./work.js";

const allWorks = [...works, ...orderWorks];

const say = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

function chosen(options: Options): { wanted: readonly Measure[]; subjects: readonly Subject[] } {
  const unknown = options.measures.find((name) => !measures.some((it) => it.name === name));
  if (unknown !== undefined) {
    const names = measures.map(({ name }) => name).join(", ");
    throw new RangeError(`expected a measure of ${names}, got ${unknown}`);
  }
  const subjects = allSubjects.filter(
    ({ name }) => options.only.length === 0 || options.only.some((part) => name.startsWith(part)),
  );
  if (subjects.length === 0) {
    const names = allSubjects.map(({ name }) => name).join(", ");
    throw new RangeError(`--only: expected the beginning of one of ${names}`);
  }
  const unknownWork = options.work.find((name) => !allWorks.some((it) => it.name === name));
  if (unknownWork !== undefined) {
    const names = allWorks.map(({ name }) => name).join(", ");
    throw new RangeError(`--work: expected one of ${names}, got ${unknownWork}`);
  }
  const wanted = measures.filter(
    ({ name, optional }) => options.measures.includes(name) || (options.measures.length === 0 && optional !== true),
  );
  return { wanted, subjects };
}

async function prepare(wanted: readonly Measure[], subjects: readonly Subject[]): Promise<{ node: string }> {
  const needs = new Set(subjects.filter((one) => wanted.some((it) => it.concerns(one))).map((one) => one.needs));
  if (needs.has("peers")) await installPeers(say);
  if (needs.has("pgbench")) await pgbenchProgram();
  return { node: await commonNode(needs.has("peers")) };
}

async function measure(options: Options): Promise<void> {
  const { wanted, subjects } = chosen(options);
  const { node } = await prepare(wanted, subjects);
  const whole = !options.quick && options.only.length + options.work.length === 0;
  const server = await startServer();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => {
      void server.stop().finally(() => process.exit(1));
    });
  }
  try {
    for (const each of wanted) {
      const recorded = await record(options, node);
      const raw = await each.run({
        databases: new Databases(server.url),
        node,
        options,
        subjects: subjects.filter((subject) => each.concerns(subject)),
        say,
      });
      const file = await keep({ measure: each.name, recorded, raw }, { whole });
      const { title, note, ...table } = each.report(raw);
      process.stdout.write(`\n${title}\n\n${markdownTable(table)}\n\n${note}\nRaw: ${file}\n\n`);
    }
  } finally {
    await server.stop();
  }
  if (whole) await writePage();
}

try {
  const options = readOptions(process.argv.slice(2));
  await (options.page ? writePage() : measure(options));
} catch (error) {
  say(error instanceof Error ? error.message : String(error));
  if (error instanceof TypeError || error instanceof RangeError) say(usage);
  process.exitCode = 1;
}
