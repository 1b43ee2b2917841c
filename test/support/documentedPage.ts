import assert from "node:assert/strict";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Client } from "../../src/shared/postgres/client.js";
import { eventually } from "./tasks.js";
import { runCommandLine } from "./commandLine.js";
import type { TestDatabase } from "./database.js";
import { startProcess } from "./process.js";
import { bin, projectPath } from "./project.js";
import { temporaryFolder } from "./temporaryFolder.js";

/** An example on a page, and what the page shows as its result. */
export interface DocumentedStep {
  readonly kind: "sql" | "console" | "js";
  readonly text: string;
  readonly result: string | undefined;
}

/**
 * Returns the examples of a page in order: blocks of SQL with the result in the next block, commands with the output
 * below each of them, and programs with their output in the next block.
 */
export function documentedSteps(page: string): DocumentedStep[] {
  const steps: DocumentedStep[] = [];
  let last = "";
  for (const [, language = "", text = ""] of page.matchAll(/^```(\w*)\n([^]*?)^```$/gm)) {
    if (language === "console") steps.push(...commands(text));
    else if (language === "sql" || language === "js") steps.push({ kind: language, text, result: undefined });
    else if (language === "" || language === "output") {
      const step = steps.at(-1);
      assert.ok(step !== undefined && last === (language === "" ? "sql" : "js"), `nothing shows this result:\n${text}`);
      steps[steps.length - 1] = { ...step, result: text };
    }
    last = language;
  }
  return steps;
}

const commands = (block: string): DocumentedStep[] =>
  block
    .split(/^\$ /m)
    .slice(1)
    .map((part) => {
      const end = part.indexOf("\n");
      return { kind: "console", text: part.slice(0, end), result: part.slice(end + 1) };
    });

/** A block of SQL on a page, and the result that the page shows below it. */
export interface DocumentedBlock {
  readonly sql: string;
  readonly result: string | undefined;
}

/** Returns the blocks of SQL of a page. Fails if one of its blocks of SQL or results has another form. */
export function documentedBlocks(page: string): DocumentedBlock[] {
  const blocks = [...page.matchAll(/^```sql\n(.*?)^```\n(?:\n```\n(.*?)\n```$)?/gms)].map(([, sql = "", result]) => ({
    sql,
    result,
  }));
  assert.equal(blocks.length, page.match(/^```sql$/gm)?.length ?? 0);
  const results = blocks.filter(({ result }) => result !== undefined);
  assert.equal(results.length, page.match(/^```\n(?!\n|$)/gm)?.length ?? 0);
  return blocks;
}

/** Removes what differs from one run of a page to the next: times, durations, process ids, and the width of columns. */
export const comparable = (text: string): string =>
  text
    .replaceAll(/\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?( ?[+-]\d\d(:\d\d)?)?|\b\d\d:\d\d:\d\d\b(\.\d+)?/g, "TIME")
    .replaceAll(/\b[\d.]+ (ms|s|min)\b/g, "LONG")
    .replaceAll(/server process \d+/g, "server process PID")
    .replaceAll(/announced process -?\d+, was answered by \d+/g, "two processes")
    .replaceAll(/\b\d+ of \d+ in use(, \d+ of them by task sessions)?; pg-task may use up to \d+/g, "N in use")
    .replaceAll(/(trouble_)?test_[0-9a-f]+|\bshop\b/g, "DATABASE")
    .replaceAll(/\S+\/pg_task\.json/g, "FILE")
    .replaceAll(/(pg_task\.json in )[^\s,]+/g, "$1FOLDER")
    .replaceAll(/(pg_terminate_backend\()\d+/g, "$1PID")
    .replaceAll(/127\.0\.0\.1:\d+|port(=| )\d+/g, "ADDRESS")
    .replaceAll(/-{2,}/g, "-")
    .replaceAll(/[ \t]+/g, " ")
    .replaceAll(/ ?([+|]) ?/g, "$1")
    .replaceAll(/ $/gm, "")
    .trim();

/** Runs the examples of a page, one after another, on a database that pg-task serves. */
export class DocumentedPage {
  readonly #client: Client;
  /** Environment of commands and programs. */
  readonly env: Record<string, string>;
  #folder: string | undefined;

  /** @param client a connection to the database. Examples in SQL use it. */
  constructor(database: TestDatabase, client: Client) {
    this.#client = client;
    this.env = { DATABASE_URL: database.url };
  }

  /**
   * Executes an example, and returns its result. Then waits until all tasks that are planned for now or soon have ended.
   * If the example plans a task that sleeps for whole seconds, waits until that task sleeps.
   */
  async run(step: DocumentedStep): Promise<string> {
    const result = await this.result(step);
    if (/pg_sleep\(\d+\)/.test(step.text) && /INSERT|pg-task add/.test(step.text)) await this.sleeping();
    else await this.settled();
    return result;
  }

  async result({ kind, text }: DocumentedStep): Promise<string> {
    if (kind === "js") return await this.#program(text);
    if (kind === "console") return await this.#command(text);
    const last = (await textResults(this.#client, text)).at(-1);
    return last === undefined ? "" : psqlTable(last);
  }

  async #command(command: string): Promise<string> {
    const folder = await this.folder();
    const path = `${join(folder, "bin")}:${dirname(process.execPath)}:${process.env["PATH"] ?? ""}`;
    const env = { ...this.env, NO_COLOR: "1", PATH: path };
    const { shown } = await runCommandLine(command, { cwd: folder, env });
    // On a slow machine, a command that waits shows its progress, and erases it.
    return shown
      .split("\n")
      .map((line) => line.split("\r\x1b[K").at(-1))
      .join("\n");
  }

  async #program(text: string): Promise<string> {
    const folder = await this.folder();
    await writeFile(join(folder, "example.mjs"), text);
    const child = await startProcess({
      command: [process.execPath, join(folder, "example.mjs")],
      cwd: folder,
      env: this.env,
    });
    assert.deepEqual(await child.exit, { code: 0, signal: null }, child.output.stderr);
    return child.output.stdout;
  }

  /** Returns a folder in which commands and programs run, and in which `pg-task`, `npx pg-task` and `import "pg-task"` work. */
  async folder(): Promise<string> {
    if (this.#folder !== undefined) return this.#folder;
    const folder = await temporaryFolder();
    await mkdir(join(folder, "bin"));
    await mkdir(join(folder, "node_modules"));
    await symlink(projectPath(), join(folder, "node_modules", "pg-task"));
    await symlink(projectPath("node_modules/pg"), join(folder, "node_modules", "pg"));
    const run = `exec "${process.execPath}" "${bin}" "$@"\n`;
    await writeFile(join(folder, "bin", "pg-task"), `#!/bin/sh\n${run}`, { mode: 0o755 });
    await writeFile(join(folder, "bin", "npx"), `#!/bin/sh\ntest "$1" = pg-task && shift && ${run}`, { mode: 0o755 });
    this.#folder = folder;
    return folder;
  }

  /** Resolves when no task runs, and none is planned for the next seconds, or when a task sleeps for a minute. */
  async settled(): Promise<void> {
    await eventually<{ sleeps: boolean }>(
      this.#client,
      `SELECT state = 'WORK' AND input LIKE '%pg_sleep(60)%' AS sleeps FROM task
       WHERE state IN ('TAKE', 'WORK') OR owner IS NOT NULL OR state = 'PLAN' AND plan <= now() + interval '10 s'`,
      (rows) => rows.length === 0 || rows.some(({ sleeps }) => sleeps),
    );
  }

  /**
   * Resolves when a task is in pg_sleep, and has been running for a second. Until a run is known as a long one, other
   * tasks of its group may be queued behind it, and are not shown as waiting for it.
   */
  async sleeping(): Promise<void> {
    await eventually(
      this.#client,
      `SELECT FROM task JOIN pg_stat_activity USING (pid)
       WHERE task.state = 'WORK' AND wait_event = 'PgSleep' AND start < clock_timestamp() - interval '1 s'`,
      (rows) => rows.length > 0,
    );
  }
}

/** The result of a statement, with all values as the server's text. */
export interface TextResult {
  readonly fields: readonly { readonly name: string; readonly dataTypeID: number }[];
  readonly rows: readonly Readonly<Record<string, string | null>>[];
}

export async function textResults(client: Client, sql: string): Promise<readonly TextResult[]> {
  const types = { getTypeParser: () => (value: string) => value };
  const answer: TextResult | readonly TextResult[] = await client.query({ text: sql, types });
  return [answer].flat();
}

/** Shows a result as psql does, without the line that counts the rows, and without spaces at the ends of lines. */
export function psqlTable({ fields, rows }: TextResult): string {
  const numeric = new Set([20, 21, 23, 700, 701, 1700]);
  const shown = fields.map(({ name, dataTypeID }) => {
    const cells = rows.map((row) => (row[name] ?? "").split("\n"));
    const width = Math.max(name.length, ...cells.flat().map((line) => line.length));
    return { name, cells, width, right: numeric.has(dataTypeID) };
  });
  const lines = [
    shown
      .map(({ name, width }) => name.padStart(name.length + Math.floor((width - name.length) / 2)).padEnd(width))
      .map((cell) => ` ${cell} `)
      .join("|"),
    shown.map(({ width }) => "-".repeat(width + 2)).join("+"),
  ];
  for (const index of rows.keys()) {
    const height = Math.max(...shown.map(({ cells }) => cells[index]?.length ?? 1));
    for (let line = 0; line < height; line++) {
      lines.push(
        shown
          .map(({ cells, width, right }) => {
            const cell = cells[index] ?? [];
            const text = cell[line] ?? "";
            const padded = right ? text.padStart(width) : text.padEnd(width);
            return ` ${padded}${line + 1 < cell.length ? "+" : " "}`;
          })
          .join("|"),
      );
    }
  }
  return lines.map((line) => line.trimEnd()).join("\n");
}
