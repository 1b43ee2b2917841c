// Fails if a dependency has a known vulnerability. Some registries, such as mirrors, answer no audits: this is said, and
// is not a failure of the project.
import { spawnSync } from "node:child_process";

const { stdout } = spawnSync("npm", ["audit", "--json"], { encoding: "utf8" });
const { metadata, message, error } = JSON.parse(stdout);
if (metadata === undefined) {
  process.stdout.write(`npm audit: NOT CHECKED, the registry gave no answer: ${message ?? error?.summary ?? stdout}\n`);
} else {
  const { total } = metadata.vulnerabilities;
  process.stdout.write(total === 0 ? "npm audit: no known vulnerabilities\n" : stdout);
  process.exitCode = total === 0 ? 0 : 1;
}
