import { maskUrl } from "../shared/postgres/target/parseUrl.js";

/** A task's `remote` to show: every password in it is `***`, however it is quoted. */
export function maskRemote(remote: string): string {
  return maskUrl(remote).replace(
    /(password\s*=\s*)('(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\&])+)/gis,
    "$1***",
  );
}
