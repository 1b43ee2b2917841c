import { join } from "node:path";
import { PgTaskError } from "../../shared/errors.js";
import { canRead, run, type Account } from "../serverAccount.js";
import { cachedCopy, cacheFolders } from "./binaryCache.js";
import { type InstalledPackage, addLinks, readLinks } from "./installedPackage.js";

export interface Binaries {
  readonly postgres: string;
  readonly initdb: string;
  readonly pgCtl: string;
  readonly major: string;
}

/**
 * Makes the programs usable for the account, in place if possible, otherwise as a copy in a cache folder.
 *
 * @throws PgTaskError EMBEDDED_UNAVAILABLE with the reasons
 */
export async function usableBinaries(
  installed: InstalledPackage,
  account: Account | null,
  caches: readonly string[] = cacheFolders(),
): Promise<Binaries> {
  const refusals: string[] = [];
  const native = installed.native;
  const links = await readLinks(native);
  if ((await isReadable(native, account)) && (await addLinks(native, links))) {
    const found = await tryOut(native, account);
    if (typeof found !== "string") return found;
    refusals.push(found);
  }
  for (const cache of caches) {
    const copy = await cachedCopy(installed, links, cache);
    const found = "refusal" in copy ? copy.refusal : await tryOut(copy.folder, account);
    if (typeof found !== "string") return found;
    refusals.push(found);
  }
  throw new PgTaskError(
    "EMBEDDED_UNAVAILABLE",
    `the embedded PostgreSQL ${installed.version} does not run here (${[...new Set(refusals)].join("; ")}): give a url`,
  );
}

async function isReadable(native: string, account: Account | null): Promise<boolean> {
  const samples = ["bin", "lib", "lib/postgresql", "share/postgresql/postgres.bki"];
  return await canRead(
    samples.map((name) => join(native, name)),
    account,
  );
}

/** Returns the programs if they run, otherwise the reason why they do not. */
async function tryOut(folder: string, account: Account | null): Promise<Binaries | string> {
  const suffix = process.platform === "win32" ? ".exe" : "";
  const program = (name: string) => join(folder, "bin", name + suffix);
  const [postgres, initdb] = [program("postgres"), program("initdb")];
  let major = "";
  for (const each of [postgres, initdb]) {
    const { code, output } = await run(each, ["-V"], account);
    // The output is checked because executing an empty file succeeds, too.
    const [, found] = /\(PostgreSQL\) (\d+)/.exec(output) ?? [];
    if (code !== 0 || found === undefined) return `${each} -V: ${output.trim()}`;
    major ||= found;
  }
  return { postgres, initdb, pgCtl: program("pg_ctl"), major };
}
