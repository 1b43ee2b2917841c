import assert from "node:assert/strict";
import { test } from "node:test";
import { loadConfiguration } from "../../../../src/shared/config/loadConfiguration.js";
import { maskParameters } from "../../../../src/shared/config/maskSecrets.js";
import { webhooksOf } from "../../../../src/shared/config/webhooks.js";

const secret = `whsec_${"A".repeat(43)}=`;
const url = "https://example.com/hooks/hush";

async function load(webhooks: unknown, more: { readonly lazySecrets?: boolean } = {}) {
  const content = { url: "postgresql://u@localhost/d", "pg_http.webhooks": webhooks };
  const env = { SECRET: secret, SHORT: "hush" };
  const { parameters } = await loadConfiguration({ file: undefined, content, cwd: "/", env, ...more });
  return parameters;
}

async function problems(webhooks: unknown): Promise<string> {
  const error: unknown = await load(webhooks).then(
    () => assert.fail("expected an error"),
    (reason: unknown) => reason,
  );
  return error instanceof Error ? error.message : "";
}

void test("webhooks have defaults, and secrets from the environment, which commands that only look do not need", async () => {
  const { "pg_http.webhooks": webhooks } = await load([{ url, secret: { env: "SECRET" }, states: ["GONE", "FAIL"] }]);
  const webhook = { url, secret, name: "example.com", states: ["FAIL", "GONE"], groups: null, tables: null };
  assert.deepEqual(webhooks, [webhook]);
  const lazy = await load([{ url, secret: { env: "MISSING" } }], { lazySecrets: true });
  assert.equal(lazy["pg_http.webhooks"][0]?.secret, "");
  assert.deepEqual(maskParameters(await load([{ url, secret }]))["pg_http.webhooks"][0], {
    ...webhook,
    url: "https://example.com/***",
    secret: "***",
    states: ["DONE", "FAIL", "GONE", "STOP"],
  });
});

void test("wrong webhooks are refused, without showing URLs and secrets", async () => {
  const cases: readonly [webhook: object, expected: RegExp][] = [
    [{ secret }, /pg_http\.webhooks\[0\]\.url: expected an http or https URL without user and password, got nothing/],
    [
      { url: "ftp://example.com/hush", secret },
      /\.url: expected an http or https URL .*, got another string \(\*\*\*\)/,
    ],
    [{ url: "https://u:hush@example.com/", secret }, /\.url: expected an http or https URL without user and password/],
    [{ url }, /\.secret: expected "whsec_" with 24 to 64 random bytes .*, got nothing/],
    [{ url, secret: "hush" }, /\.secret: expected "whsec_".*, got a string \(\*\*\*\)/],
    [{ url, secret: { env: "SHORT" } }, /\.secret: expected "whsec_".*, got another value/],
    [{ url, secret: { env: "MISSING" } }, /\.secret: expected the environment variable MISSING to hold the secret/],
    [{ url, secret, states: ["PLAN"] }, /\.states\[0\]: expected a list of "DONE", "FAIL", "GONE", "STOP", got "PLAN"/],
    [{ url, secret, groups: [] }, /\.groups: expected a list of names of groups, got an array/],
    [{ url, secret, group: "x" }, /\.group: unknown key, expected one of url, secret, name, states, groups, tables/],
  ];
  for (const [webhook, expected] of cases) {
    const message = await problems([webhook]);
    assert.match(message, expected);
    assert.doesNotMatch(message, /hush/);
  }
  assert.match(await problems({}), /pg_http\.webhooks: expected a list of objects/);
  assert.match(await problems([url]), /pg_http\.webhooks\[0\]: expected an object such as/);
  assert.match(
    await problems([
      { url, secret },
      { url: `${url}/2`, secret },
    ]),
    /pg_http\.webhooks\[1\]\.name: expected another name than that of the webhooks before, got "example\.com"/,
  );
});

void test("tables choose by schema and name, with or without the database", async () => {
  const { "pg_http.webhooks": webhooks } = await load([
    { url, secret, name: "all" },
    { url, secret, name: "task", tables: ["public.task"] },
    { url, secret, name: "shop", tables: ["shop.public.task"] },
  ]);
  const names = (database: string, table: string): string[] =>
    webhooksOf(webhooks, { database, schema: "public", table }).map(({ name }) => name);
  assert.deepEqual(names("shop", "task"), ["all", "task", "shop"]);
  assert.deepEqual(names("other", "task"), ["all", "task"]);
  assert.deepEqual(names("shop", "other"), ["all"]);
});
