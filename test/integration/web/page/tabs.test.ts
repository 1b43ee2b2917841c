import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import type { Page, Request } from "playwright-core";
import { freePort } from "../../../../src/embedded/port.js";
import { noBrowserReason } from "../../../support/browser.js";
import { createDatabase } from "../../../support/database.js";
import { RestartableServer } from "../../../support/restartableServer.js";
import { openPage } from "../../../support/page.js";
import { startProcess, type TestProcess } from "../../../support/process.js";
import { insertTask } from "../../../support/waitFor.js";
import { token, Web } from "../../../support/web.js";

const database = await createDatabase();
const client = await database.connect();
const { database: data, user } = database.target;

/** Number of tabs. It is larger than the number of connections that a browser opens to one server. */
const manyTabs = 8;

beforeEach(() => client.query("TRUNCATE task"));

async function start(
  entries: readonly object[] = [{ data, user }],
  port = 0,
): Promise<{ program: TestProcess; web: Web }> {
  const program = await startProcess({
    config: {
      url: database.url,
      "pg_http.listen": `127.0.0.1:${port}`,
      "pg_http.token": token,
      "pg_task.json": entries,
    },
  });
  const web = await Web.connect(program);
  await program.line("ready");
  return { program, web };
}

const isStream = (request: Request): boolean => request.url().endsWith("/api/events");

/** Tracks which pages of a browser have an open stream. */
class OpenStreams {
  readonly open = new Set<Page>();

  watch(page: Page): void {
    const ended = (request: Request): void => {
      if (isStream(request)) this.open.delete(page);
    };
    page.on("request", (request) => {
      if (isStream(request)) this.open.add(page);
    });
    page.on("requestfinished", ended);
    page.on("requestfailed", ended);
    page.on("close", () => this.open.delete(page));
  }
}

const tile = (page: Page, title: string, value: string): Promise<void> =>
  page.locator(".tile", { hasText: title }).locator("dd", { hasText: value }).waitFor();
const isLive = async (page: Page): Promise<void> =>
  await page.getByRole("status").getByText("live", { exact: true }).waitFor();
const isNotLive = async (page: Page): Promise<void> =>
  await page.getByRole("status").getByText("not live", { exact: true }).waitFor();

describe("pages in tabs", { skip: noBrowserReason }, () => {
  it("share one stream, which another tab takes over when its tab is closed or left", async () => {
    const { program, web } = await start();
    const path = `/tables/${await web.tableId()}/tasks`;
    const { page, errors } = await openPage(web, path);
    const context = page.context();
    const streams = new OpenStreams();
    const tabs = [page];
    streams.watch(page);
    await page.reload();
    while (tabs.length < manyTabs) {
      const tab = await context.newPage();
      streams.watch(tab);
      tabs.push(tab);
      await tab.goto(`${web.url}${path}`);
    }
    const allShow = async (): Promise<void> => {
      await Promise.all(tabs.map(isLive));
      assert.equal(streams.open.size, 1);
      const id = await insertTask(client, "SELECT 1");
      await Promise.all(tabs.map((tab) => tab.locator(`tr[data-id="${id}"]`).waitFor()));
    };
    await allShow();
    for (const leave of [
      (tab: Page) => tab.close(),
      (tab: Page) => tab.goto("about:blank"),
      (tab: Page) => tab.close(),
    ]) {
      const [leader] = streams.open;
      assert.ok(leader);
      tabs.splice(tabs.indexOf(leader), 1);
      await leave(leader);
      while (streams.open.size === 0 || streams.open.has(leader)) {
        await tabs[0]?.evaluate("1");
      }
      await allShow();
    }
    assert.deepEqual(errors, []);
    await context.close();
    assert.equal((await program.end()).code, 0);
    assert.equal(program.output.stderr, "");
  });

  it("have a stream each without the Locks API", async () => {
    const { program, web } = await start();
    const path = `/tables/${await web.tableId()}/tasks`;
    const { page, errors } = await openPage(web, "/");
    await page.context().addInitScript("delete Navigator.prototype.locks");
    const other = await page.context().newPage();
    const streams = new OpenStreams();
    for (const tab of [page, other]) {
      streams.watch(tab);
      await tab.goto(`${web.url}${path}`);
    }
    await Promise.all([page, other].map(isLive));
    assert.equal(streams.open.size, 2);
    const id = await insertTask(client, "SELECT 1");
    await Promise.all([page, other].map((tab) => tab.locator(`tr[data-id="${id}"]`).waitFor()));
    assert.deepEqual(errors, []);
    await page.context().close();
    await program.end();
  });

  it("show unknown values while a server is unresponsive, and recover afterwards", async () => {
    const server = await RestartableServer.create(await freePort());
    await server.start();
    const { program, web } = await start([
      { data, user },
      { url: server.url, table: "other" },
    ]);
    const [hereId, otherId] = [await web.tableId(), await web.tableId("other")];
    const { page: silent } = await openPage(web, `/tables/${otherId}`);
    const other = await silent.context().newPage();
    const all = await silent.context().newPage();
    await other.goto(`${web.url}/tables/${hereId}`);
    await all.goto(`${web.url}/`);
    const cellOf = (table: string, column: number): ReturnType<Page["locator"]> =>
      all
        .locator("table.overall tr", { hasText: `public.${table}` })
        .locator("td")
        .nth(column);
    await Promise.all([silent, other, all].map(isLive));
    await Promise.all([tile(silent, "Running", "0"), tile(other, "Running", "0")]);

    for (const [interrupt, resume] of [
      [() => server.freezeAll(), async () => server.thaw()],
      [() => server.stop(), () => server.start()],
    ] as const) {
      await interrupt();
      await isNotLive(silent);
      await tile(silent, "Running", "–");
      await tile(silent, "Due", "unknown");
      await all.getByRole("status").getByText("1 of 2 not live").waitFor();
      await cellOf("other", 3).getByText("–").waitFor();
      await cellOf("other", 1).getByText("–").waitFor();
      await cellOf("task", 1).getByText("0", { exact: true }).waitFor();
      await isLive(other);
      const id = await insertTask(client, "SELECT 1");
      await tile(other, "Due", "nothing due");
      await other.goto(`${web.url}/tables/${hereId}/tasks`);
      await other.locator(`tr[data-id="${id}"]`).waitFor();
      await other.goto(`${web.url}/tables/${hereId}`);
      await resume();
      await Promise.all([silent, other, all].map(isLive));
      await tile(silent, "Running", "0");
      await tile(silent, "Due", "nothing due");
      await silent.locator(".notice.bad").first().waitFor({ state: "detached" });
      await cellOf("other", 1).getByText("0", { exact: true }).waitFor();
    }
    await silent.context().close();
    await program.end();
  });

  for (const [what, gone, notice] of [
    [
      "of the page's modules",
      "**/page/main.js",
      /^pg-task does not answer, so this page could not be loaded\. It keeps trying\.$/,
    ],
    ["of the tables", "**/api/tables", /^pg-task does not answer\. This page keeps trying\.$/],
  ] as const) {
    it(`say so when pg-task is gone before the first request ${what}, and load when it is back`, async () => {
      const port = await freePort();
      const first = await start(undefined, port);
      const { page } = await openPage(first.web, "/");
      await isLive(page);
      await page.route(
        gone,
        async (route) => {
          await first.program.end("SIGKILL");
          await route.continue();
        },
        { times: 1 },
      );
      await page.reload();
      await page.getByRole("alert").filter({ hasText: notice }).first().waitFor();
      const second = await start(undefined, port);
      await isLive(page);
      await page.getByRole("alert").first().waitFor({ state: "detached" });
      await page.context().close();
      await second.program.end();
    });
  }

  it("show when pg-task itself does not answer, and the time of the data", async () => {
    const { program, web } = await start();
    const { page } = await openPage(web, `/tables/${await web.tableId()}`);
    const tab = await page.context().newPage();
    await tab.goto(page.url());
    await Promise.all([page, tab].map(isLive));
    program.child.kill("SIGSTOP");
    for (const each of [page, tab]) {
      await isNotLive(each);
      await each
        .getByText(/pg-task does not answer. Showing data from \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [+-]\d\d:\d\d/)
        .first()
        .waitFor();
    }
    program.child.kill("SIGCONT");
    for (const each of [page, tab]) {
      await isLive(each);
      await each.locator(".notice.bad").first().waitFor({ state: "detached" });
    }
    await page.context().close();
    await program.end();
  });
});
