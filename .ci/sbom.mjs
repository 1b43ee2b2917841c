// Writes a CycloneDX list of everything that `npm install pg-task` installs, and of what the script of the page contains,
// to sbom.json, or to the file that is given.
// `npm sbom` in a checkout is not used, because its --omit=dev also leaves out packages that pg-task shares with the
// tools.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const [file = "sbom.json"] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "pg-task-sbom-"));
const npm = (args, cwd) =>
  execFileSync("npm", args, {
    cwd,
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
    stdio: ["ignore", "pipe", "inherit"],
  });
try {
  const [{ filename }] = JSON.parse(npm(["pack", "--json", "--ignore-scripts", "--pack-destination", folder], "."));
  writeFileSync(
    join(folder, "package.json"),
    JSON.stringify({ name: "pg-task-with-dependencies", version: "1.0.0", private: true }),
  );
  const bundled = readFileSync("dist/src/web/bundle/LICENSES.txt", "utf8").match(/^[@\w][^\s@]*@[\d.]+$/gm);
  npm(["install", "--ignore-scripts", "--no-audit", "--no-fund", join(folder, filename), ...bundled], folder);
  writeFileSync(resolve(file), npm(["sbom", "--sbom-format", "cyclonedx"], folder));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
