import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import type { Page, Request } from "playwright-core";
import { freePort } from "../../../../src/embedded/port.js";
import { noBrowser } from "../../../support/browser.js";
import { createDatabase } from "../../../support/database.js";
import { OwnServer } from "../../../support/ownServer.js";
import { openPage } from "../../../support/page.js";
import { startProcess, type TestProcess } from "../../../support/process.js";
import { insertTask } from "../../../support/waitFor.js";
import { token, Web } from "../../../support/web.js";

const database = await createDatabase();
const client = await database.connect();
const { database: data, user } = database.target;

/** More than a browser opens connections to one server. */
const manyTabs = 8;

beforeEach(() => client.query("TRUNCATE task"));

async function start(
  entries: readonly object[] = [{ data, user }],
): Promise<{ program: TestProcess; web: Web }> {
  const program = await startProcess({
    config: {
      url: database.url,
      "pg_http.listen": "127.0.0.1:0",
      "pg_http.token": token,
      "pg_task.json": entries,
    },
  });
  const web = await Web.of(program);
  await program.line("ready");
  return { program, web };
}

const isStream = (request: Request): boolean => request.url().endsWith("/api/events");

/** Keeps count of the streams that a browser's pages have open. */
class Streams {
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

describe("pages in tabs", { skip: noBrowser }, () => {
  it("share one stream, which another takes over when its page is closed or left", async () => {
    const { program, web } = await start();
    const path = `/tables/${await web.tableId()}/tasks`;
    const { page, mistakes } = await openPage(web, path);
    const context = page.context();
    const streams = new Streams();
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
    assert.deepEqual(mistakes, []);
    await context.close();
    assert.equal((await program.end()).code, 0);
    assert.equal(program.output.stderr, "");
  });

  it("have a stream each where they cannot agree on one", async () => {
    const { program, web } = await start();
    const path = `/tables/${await web.tableId()}/tasks`;
    const { page, mistakes } = await openPage(web, "/");
    await page.context().addInitScript("delete Navigator.prototype.locks");
    const other = await page.context().newPage();
    const streams = new Streams();
    for (const tab of [page, other]) {
      streams.watch(tab);
      await tab.goto(`${web.url}${path}`);
    }
    await Promise.all([page, other].map(isLive));
    assert.equal(streams.open.size, 2);
    const id = await insertTask(client, "SELECT 1");
    await Promise.all([page, other].map((tab) => tab.locator(`tr[data-id="${id}"]`).waitFor()));
    assert.deepEqual(mistakes, []);
    await page.context().close();
    await program.end();
  });

  it("say what is not known while a server is silent, and know it again afterwards", async () => {
    const server = await OwnServer.at(await freePort());
    await server.start();
    const { program, web } = await start([
      { data, user },
      { url: server.url, table: "aside" },
    ]);
    const [here, aside] = [await web.tableId(), await web.tableId("aside")];
    const { page: silent } = await openPage(web, `/tables/${aside}`);
    const other = await silent.context().newPage();
    const all = await silent.context().newPage();
    await other.goto(`${web.url}/tables/${here}`);
    await all.goto(`${web.url}/`);
    const rowOf = (table: string, place: number): ReturnType<Page["locator"]> =>
      all
        .locator("table.overall tr", { hasText: `public.${table}` })
        .locator("td")
        .nth(place);
    await Promise.all([silent, other, all].map(isLive));
    await Promise.all([tile(silent, "Running", "0"), tile(other, "Running", "0")]);

    for (const [silence, end] of [
      [() => server.freezeAll(), async () => server.thaw()],
      [() => server.stop(), () => server.start()],
    ] as const) {
      await silence();
      await isNotLive(silent);
      await tile(silent, "Running", "–");
      await tile(silent, "Due", "not known");
      await all.getByRole("status").getByText("1 of 2 not live").waitFor();
      await rowOf("aside", 3).getByText("–").waitFor();
      await rowOf("aside", 1).getByText("–").waitFor();
      await rowOf("task", 1).getByText("0", { exact: true }).waitFor();
      await isLive(other);
      const id = await insertTask(client, "SELECT 1");
      await tile(other, "Due", "nothing waits");
      await other.goto(`${web.url}/tables/${here}/tasks`);
      await other.locator(`tr[data-id="${id}"]`).waitFor();
      await other.goto(`${web.url}/tables/${here}`);
      await end();
      await Promise.all([silent, other, all].map(isLive));
      await tile(silent, "Running", "0");
      await tile(silent, "Due", "nothing waits");
      await silent.locator(".notice.bad").first().waitFor({ state: "detached" });
      await rowOf("aside", 1).getByText("0", { exact: true }).waitFor();
    }
    await silent.context().close();
    await program.end();
  });

  it("say when pg-task itself does not answer, and of when what they show is", async () => {
    const { program, web } = await start();
    const { page } = await openPage(web, `/tables/${await web.tableId()}`);
    const tab = await page.context().newPage();
    await tab.goto(page.url());
    await Promise.all([page, tab].map(isLive));
    program.child.kill("SIGSTOP");
    for (const each of [page, tab]) {
      await isNotLive(each);
      await each
        .getByText(/pg-task does not answer. What is shown is how it was at \d\d:\d\d:\d\d/)
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
