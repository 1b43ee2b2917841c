import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import {
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readlink,
  rm,
  stat,
  symlink,
  truncate,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { serverAccount } from "../../../src/embedded/serverAccount.js";
import { usableBinaries, type Binaries } from "../../../src/embedded/binaries/usableBinaries.js";
import type { Account } from "../../../src/embedded/runCommand.js";
import {
  installedPackage,
  type InstalledPackage,
} from "../../../src/embedded/binaries/installedPackage.js";
import { readLinks } from "../../../src/embedded/binaries/libraryLinks.js";
import { isRoot, onServer, start, temporaryFolder } from "../../support/embedded.js";

const account: Account | null = await serverAccount(null);
const folder = await openFolder();
const installed = await newInstall();
const links = await readLinks(installed.native);
const copyName = `${installed.platform}-${installed.version}`;
const libraries = join(installed.native, "lib");

async function openFolder(): Promise<string> {
  const path = await temporaryFolder();
  await chmod(path, 0o755);
  return path;
}

/** The package as npm leaves it when scripts are off: without the links. */
async function newInstall(): Promise<InstalledPackage> {
  const original = await installedPackage();
  const native = join(folder, "install/native");
  await mkdir(dirname(native));
  await promisify(execFile)("cp", ["-r", original.native, native]);
  await promisify(execFile)("find", [native, "-type", "l", "-delete"]);
  return { ...original, native };
}

async function missingLinks(): Promise<string[]> {
  const there = await readdir(libraries);
  return [...links.keys()].filter((path) => !there.includes(path.replace("lib/", "")));
}

async function removeLinks(): Promise<void> {
  for (const path of links.keys()) await rm(join(installed.native, path), { force: true });
}

async function newCache(): Promise<string> {
  const path = await mkdtemp(join(folder, "cache-"));
  await chmod(path, 0o755);
  return path;
}

const ask = async (...places: string[]): Promise<Binaries> =>
  await usableBinaries(installed, account, places);

/** Runs something while the package has no links and may not get them. */
async function whileReadOnly<T>(work: () => Promise<T>): Promise<T> {
  await removeLinks();
  await chmod(libraries, 0o555);
  try {
    return await work();
  } finally {
    await chmod(libraries, 0o755);
  }
}

const askReadOnly = async (...places: string[]): Promise<Binaries> =>
  await whileReadOnly(() => ask(...places));

test("missing links are added where the package is installed, when that may be written", async () => {
  assert.equal((await missingLinks()).length, 14);
  const binaries = await ask("/nowhere");
  assert.equal(binaries.postgres, join(installed.native, "bin/postgres"));
  assert.equal(binaries.major, "18");
  assert.deepEqual(await missingLinks(), []);
  assert.equal(await readlink(join(libraries, "libpq.so.5")), "libpq.so.5.18");
});

test("with the links in place a read-only install is used as it stands", async () => {
  const place = await newCache();
  await chmod(libraries, 0o555);
  assert.equal((await ask(place)).postgres, join(installed.native, "bin/postgres"));
  assert.deepEqual(await readdir(place), []);
  await chmod(libraries, 0o755);
});

test("a read-only install without links is left alone, and a server runs from a copy", async () => {
  const place = await newCache();
  await whileReadOnly(async () => {
    const server = await start(
      { dataDirectory: join(folder, "data") },
      { installed, cachePlaces: [place] },
    );
    const { rows } = await onServer(server.url, (client) => client.query("SHOW server_version"));
    assert.match(rows[0].server_version, /^18\./);
    await server.stop();
    assert.equal((await missingLinks()).length, 14);
  });
  assert.deepEqual(await readdir(place), [copyName]);
});

test(
  "an install that only root can enter is left alone and copied to where the account can",
  { skip: !isRoot },
  async () => {
    const place = await newCache();
    await removeLinks();
    await chmod(dirname(installed.native), 0o700);
    const { postgres } = await ask(place);
    await chmod(dirname(installed.native), 0o755);
    assert.equal(postgres, join(place, copyName, "bin/postgres"));
    assert.equal((await missingLinks()).length, 14);
  },
);

test("a copy that is whole is used again, one with a damaged file is made anew", async () => {
  const place = await newCache();
  const { postgres } = await askReadOnly(place);
  const copy = dirname(dirname(postgres));
  const made = (await stat(copy)).ino;
  await askReadOnly(place);
  assert.equal((await stat(copy)).ino, made);
  const sample = join(copy, "share/postgresql/timezone/UTC");
  await rm(sample);
  await askReadOnly(place);
  assert.notEqual((await stat(copy)).ino, made);
  assert.ok((await stat(sample)).size > 0);
});

test("starts at once make one whole copy, and leave nothing else", async () => {
  const place = await newCache();
  const found = await whileReadOnly(() => Promise.all([ask(place), ask(place), ask(place)]));
  assert.equal(new Set(found.map(({ postgres }) => postgres)).size, 1);
  assert.deepEqual(await readdir(place), [copyName]);
});

test("what a killed start left half-made is removed, what a living one makes is not", async () => {
  const place = await newCache();
  const gone = execFile("true");
  await new Promise((resolve) => gone.once("exit", resolve));
  await mkdir(join(place, `.${copyName}.unfinished-${gone.pid}-abc/bin`), { recursive: true });
  await mkdir(join(place, `.${copyName}.unfinished-${process.pid}-abc`));
  await askReadOnly(place);
  assert.deepEqual((await readdir(place)).toSorted(), [
    `.${copyName}.unfinished-${process.pid}-abc`,
    copyName,
  ]);
});

test("an install that was copied with files in the links' places is copied as well", async () => {
  const place = await newCache();
  const { postgres } = await whileReadOnly(async () => {
    await chmod(libraries, 0o755);
    await copyFile(join(libraries, "libpq.so.5.18"), join(libraries, "libpq.so.5"));
    await chmod(libraries, 0o555);
    return await ask(place);
  });
  assert.equal(postgres, join(place, copyName, "bin/postgres"));
  assert.equal(await readlink(join(place, copyName, "lib/libpq.so.5")), "libpq.so.5.18");
});

test("a cache that others can write is passed over for the next place", async () => {
  const [shared, own] = [await newCache(), await newCache()];
  await chmod(shared, 0o777);
  const { postgres } = await askReadOnly(shared, own);
  assert.equal(dirname(dirname(dirname(postgres))), own);
  assert.deepEqual(await readdir(shared), []);
});

test("a cache that is a link to elsewhere is passed over", async () => {
  const [target, own] = [await newCache(), await newCache()];
  const link = join(folder, "link");
  await symlink(target, link);
  const { postgres } = await askReadOnly(link, own);
  assert.equal(dirname(dirname(dirname(postgres))), own);
});

test("programs that do not run here are said to be unavailable, with the reason", async () => {
  const place = await newCache();
  const broken = join(installed.native, "bin/initdb");
  await truncate(broken, 0);
  await assert.rejects(askReadOnly(place), {
    code: "EMBEDDED_UNAVAILABLE",
    message: /^the embedded PostgreSQL 18\..* does not run here \(.+\): give a url$/,
  });
});
