import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { beforeEach, describe, it } from "node:test";
import type { Page, Request } from "playwright-core";
import { freePort } from "../../../../src/embedded/port.js";
import { noBrowserReason } from "../../../support/browser.js";
import { createDatabase } from "../../../support/database.js";
import { RestartableServer } from "../../../support/restartableServer.js";
import { openPage } from "../../../support/page.js";
import { PgTask } from "../../../support/pgTask.js";
import { startProcess } from "../../../support/process.js";
import { startWeb } from "../../../support/startWeb.js";
import { insertTask } from "../../../support/tasks.js";
import { Web } from "../../../support/web.js";

const server = await RestartableServer.create(await freePort());
await server.start();
/** Another pg-task than that of the other tests. */
const otherPgTask = new PgTask();
const own = await createDatabase();
const ownClient = await own.connect();
const { client, config, web, table } = await startWeb();
const path = `/tables/${table}/tasks`;

/** Number of tabs. It is larger than the number of connections that a browser opens to one server. */
const manyTabs = 8;

beforeEach(() => client.query("TRUNCATE task"));

async function startOther(more: object): Promise<Web> {
  otherPgTask.lines.length = 0;
  await otherPgTask.start({ ...config, url: own.url, ...more });
  return await Web.connect(otherPgTask);
}

const isStream = (request: Request): boolean => request.url().endsWith("/api/events");

/** Tracks which pages of a browser have an open stream. */
class OpenStreams {
  readonly open = new Set<Page>();
  readonly #changes = new EventEmitter();

  watch(page: Page): void {
    const begin = (): void => void (this.open.add(page), this.#changes.emit("changed"));
    const end = (): void => void (this.open.delete(page), this.#changes.emit("changed"));
    page.on("request", (request) => isStream(request) && begin());
    page.on("requestfinished", (request) => isStream(request) && end());
    page.on("requestfailed", (request) => isStream(request) && end());
    page.on("close", end);
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await once(this.#changes, "changed");
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
    const page = await openPage(web, path);
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
      await streams.until(() => streams.open.size > 0 && !streams.open.has(leader));
      await allShow();
    }
  });

  it("have a stream each without the Locks API", async () => {
    const page = await openPage(web, "/");
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
  });

  it("show unknown values while a server is unresponsive, and recover afterwards", async () => {
    const { database: data, user } = own.target;
    const otherWeb = await startOther({
      "pg_task.json": [
        { data, user },
        { url: server.url, table: "other" },
      ],
    });
    const [hereId, otherId] = [await otherWeb.tableId(), await otherWeb.tableId("other")];
    const silent = await openPage(otherWeb, `/tables/${otherId}`, { expectsErrors: true });
    const here = await silent.context().newPage();
    const all = await silent.context().newPage();
    await here.goto(`${otherWeb.url}/tables/${hereId}`);
    await all.goto(`${otherWeb.url}/`);
    const cellOf = (name: string, column: number): ReturnType<Page["locator"]> =>
      all
        .locator("table.overall tr", { hasText: `public.${name}` })
        .locator("td")
        .nth(column);
    await Promise.all([silent, here, all].map(isLive));
    await Promise.all([tile(silent, "Running", "0"), tile(here, "Running", "0")]);

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
      await isLive(here);
      const id = await insertTask(ownClient, "SELECT 1");
      await tile(here, "Due", "nothing due");
      await here.goto(`${otherWeb.url}/tables/${hereId}/tasks`);
      await here.locator(`tr[data-id="${id}"]`).waitFor();
      await here.goto(`${otherWeb.url}/tables/${hereId}`);
      await resume();
      await Promise.all([silent, here, all].map(isLive));
      await tile(silent, "Running", "0");
      await tile(silent, "Due", "nothing due");
      await silent.locator(".notice.bad").first().waitFor({ state: "detached" });
      await cellOf("other", 1).getByText("0", { exact: true }).waitFor();
    }
    await otherPgTask.stop();
  });

  for (const [what, gone, notice] of [
    [
      "of the page's modules",
      "**/page/page.js",
      /^pg-task does not answer, so this page could not be loaded\. It keeps trying\.$/,
    ],
    ["of the tables", "**/api/tables", /^pg-task does not answer\. This page keeps trying\.$/],
  ] as const) {
    it(`say so when pg-task is gone before the first request ${what}, and load when it is back`, async () => {
      const listen = { "pg_http.listen": `127.0.0.1:${await freePort()}` };
      const other = await startOther(listen);
      const page = await openPage(other, "/", { expectsErrors: true });
      await isLive(page);
      await page.goto("about:blank");
      await page.route(
        gone,
        async (route) => {
          await otherPgTask.stop();
          await route.continue();
        },
        { times: 1 },
      );
      await page.goto(other.url);
      await page.getByRole("alert").filter({ hasText: notice }).first().waitFor();
      await startOther(listen);
      await isLive(page);
      await page.getByRole("alert").first().waitFor({ state: "detached" });
      await otherPgTask.stop();
    });
  }

  it("show when pg-task itself does not answer, and the time of the data", async () => {
    // Only a process can be suspended.
    const program = await startProcess({ config: { ...config, url: own.url } });
    const suspended = await Web.connect(program);
    await program.line("ready");
    const page = await openPage(suspended, `/tables/${await suspended.tableId()}`, { expectsErrors: true });
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
