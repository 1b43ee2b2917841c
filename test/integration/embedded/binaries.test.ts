import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, copyFile, mkdir, mkdtemp, readdir, readlink, rm, stat, symlink, truncate } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { serverAccount, type Account } from "../../../src/embedded/serverAccount.js";
import { usableBinaries, type Binaries } from "../../../src/embedded/binaries/usableBinaries.js";
import { installedPackage, type InstalledPackage, readLinks } from "../../../src/embedded/binaries/installedPackage.js";
import { isRoot, start } from "../../support/embedded.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { withConnectionTo } from "../../support/connectTo.js";

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

/** Copies the package as npm installs it with scripts disabled, that is, without the symbolic links. */
async function newInstall(): Promise<InstalledPackage> {
  const original = await installedPackage();
  const native = join(folder, "install/native");
  await mkdir(dirname(native));
  await promisify(execFile)("cp", ["-r", original.native, native]);
  await promisify(execFile)("find", [native, "-type", "l", "-delete"]);
  return { ...original, native };
}

async function missingLinks(): Promise<string[]> {
  const present = await readdir(libraries);
  return [...links.keys()].filter((path) => !present.includes(path.replace("lib/", "")));
}

async function removeLinks(): Promise<void> {
  for (const path of links.keys()) await rm(join(installed.native, path), { force: true });
}

async function newCache(): Promise<string> {
  const path = await mkdtemp(join(folder, "cache-"));
  await chmod(path, 0o755);
  return path;
}

const findBinaries = async (...caches: string[]): Promise<Binaries> => await usableBinaries(installed, account, caches);

/** Calls `work` while the package has no symbolic links and is read-only. */
async function whileReadOnly<T>(work: () => Promise<T>): Promise<T> {
  await removeLinks();
  await chmod(libraries, 0o555);
  try {
    return await work();
  } finally {
    await chmod(libraries, 0o755);
  }
}

const findReadOnly = async (...caches: string[]): Promise<Binaries> =>
  await whileReadOnly(() => findBinaries(...caches));

test("missing links are added to a writable package", async () => {
  assert.equal((await missingLinks()).length, 14);
  const binaries = await findBinaries("/nowhere");
  assert.equal(binaries.postgres, join(installed.native, "bin/postgres"));
  assert.equal(binaries.major, "18");
  assert.deepEqual(await missingLinks(), []);
  assert.equal(await readlink(join(libraries, "libpq.so.5")), "libpq.so.5.18");
});

test("a read-only package with links is used in place", async () => {
  const cache = await newCache();
  await chmod(libraries, 0o555);
  assert.equal((await findBinaries(cache)).postgres, join(installed.native, "bin/postgres"));
  assert.deepEqual(await readdir(cache), []);
  await chmod(libraries, 0o755);
});

test("a read-only package without links is left alone, and a server runs from a copy", async () => {
  const cache = await newCache();
  await whileReadOnly(async () => {
    const server = await start({ dataDirectory: join(folder, "data") }, { installed, cacheFolders: [cache] });
    const { rows } = await withConnectionTo(server.url, (client) => client.query("SHOW server_version"));
    assert.match(rows[0].server_version, /^18\./);
    await server.stop();
    assert.equal((await missingLinks()).length, 14);
  });
  assert.deepEqual(await readdir(cache), [copyName]);
});

test("a package that only root can read is copied for the server's account", { skip: !isRoot }, async () => {
  const cache = await newCache();
  await removeLinks();
  await chmod(dirname(installed.native), 0o700);
  const { postgres } = await findBinaries(cache);
  await chmod(dirname(installed.native), 0o755);
  assert.equal(postgres, join(cache, copyName, "bin/postgres"));
  assert.equal((await missingLinks()).length, 14);
});

test("a complete copy is reused, a damaged one is replaced", async () => {
  const cache = await newCache();
  const { postgres } = await findReadOnly(cache);
  const copy = dirname(dirname(postgres));
  const inode = (await stat(copy)).ino;
  await findReadOnly(cache);
  assert.equal((await stat(copy)).ino, inode);
  const sample = join(copy, "share/postgresql/timezone/UTC");
  await rm(sample);
  await findReadOnly(cache);
  assert.notEqual((await stat(copy)).ino, inode);
  assert.ok((await stat(sample)).size > 0);
});

test("concurrent starts make one complete copy and leave nothing else", async () => {
  const cache = await newCache();
  const found = await whileReadOnly(() => Promise.all([1, 2, 3].map(() => findBinaries(cache))));
  assert.equal(new Set(found.map(({ postgres }) => postgres)).size, 1);
  assert.deepEqual(await readdir(cache), [copyName]);
});

test("the unfinished copy of a killed start is removed, that of a running one is not", async () => {
  const cache = await newCache();
  const gone = execFile("true");
  await new Promise((resolve) => gone.once("exit", resolve));
  await mkdir(join(cache, `.${copyName}.unfinished-${gone.pid}-abc/bin`), { recursive: true });
  await mkdir(join(cache, `.${copyName}.unfinished-${process.pid}-abc`));
  await findReadOnly(cache);
  assert.deepEqual((await readdir(cache)).toSorted(), [`.${copyName}.unfinished-${process.pid}-abc`, copyName]);
});

test("a package with files in place of links is copied, too", async () => {
  const cache = await newCache();
  const { postgres } = await whileReadOnly(async () => {
    await chmod(libraries, 0o755);
    await copyFile(join(libraries, "libpq.so.5.18"), join(libraries, "libpq.so.5"));
    await chmod(libraries, 0o555);
    return await findBinaries(cache);
  });
  assert.equal(postgres, join(cache, copyName, "bin/postgres"));
  assert.equal(await readlink(join(cache, copyName, "lib/libpq.so.5")), "libpq.so.5.18");
});

test("a cache that others can write is skipped for the next one", async () => {
  const [shared, own] = [await newCache(), await newCache()];
  await chmod(shared, 0o777);
  const { postgres } = await findReadOnly(shared, own);
  assert.equal(dirname(dirname(dirname(postgres))), own);
  assert.deepEqual(await readdir(shared), []);
});

test("a cache that is a symbolic link is skipped", async () => {
  const [target, own] = [await newCache(), await newCache()];
  const link = join(folder, "link");
  await symlink(target, link);
  const { postgres } = await findReadOnly(link, own);
  assert.equal(dirname(dirname(dirname(postgres))), own);
});

test("programs that do not run on this system are reported with the reason", async () => {
  const cache = await newCache();
  const broken = join(installed.native, "bin/initdb");
  await truncate(broken, 0);
  await assert.rejects(findReadOnly(cache), {
    code: "EMBEDDED_UNAVAILABLE",
    message: /^the embedded PostgreSQL 18\..* does not run here \(.+\): give a url$/,
  });
});
