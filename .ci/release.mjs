// Refuses to publish what is not ready for it. npm runs this before `npm publish` (script `prepublishOnly`).
import { readFileSync } from "node:fs";

const { repository, version } = JSON.parse(readFileSync("package.json", "utf8"));
const changes = readFileSync("CHANGELOG.md", "utf8");
const problems = [
  // The registry compares this with the repository that the provenance names.
  ...(repository?.url ? [] : ["package.json has no repository.url: the provenance of the package needs it"]),
  ...(changes.includes(`\n## ${version}`) ? [] : [`CHANGELOG.md has no section "## ${version}"`]),
];
for (const problem of problems) process.stderr.write(`not ready to publish: ${problem}\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
