#!/usr/bin/env node
// Until the version is checked, nothing else is loaded: an older Node may fail to load it, with a message that does not
// say why.
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  process.stderr.write(`pg-task: expected Node.js 20.19 or later, got ${process.versions.node}\n`);
  process.exitCode = 2;
} else {
  void import("./main.js").then(async ({ main }) => {
    process.exitCode = await main(process.argv);
  });
}

export {};
