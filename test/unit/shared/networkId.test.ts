import assert from "node:assert/strict";
import { it } from "node:test";
import { networkId } from "../../../src/shared/networkId.js";

const missing = (): string => {
  throw new Error("ENOENT: no such file or directory, open '/proc'");
};

it("is the same for all processes of a machine, and does not show what it is made of", () => {
  assert.match(networkId(), /^[\da-f]{32}$/);
  assert.equal(networkId(), networkId());
  assert.equal(networkId([() => "host", () => "boot\n"]), networkId([() => "host", () => "boot"]));
});

it("differs between machines, boots and network namespaces", () => {
  const ids = [
    ["host", "boot", "net:[1]"],
    ["other", "boot", "net:[1]"],
    ["host", "other", "net:[1]"],
    ["host", "boot", "net:[2]"],
  ].map((texts) => networkId(texts.map((text) => () => text)));
  assert.equal(new Set(ids).size, 4);
});

it("is the host's name alone where there is no /proc", () => {
  const [one, same, other] = ["one", "one", "other"].map((host) => networkId([() => host, missing, missing]));
  assert.equal(one, same);
  assert.notEqual(one, other);
});
