#!/usr/bin/env node
// Until the version is checked, nothing else is loaded: an older Node may fail to load it, with a message that does not
// say why.
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);

async function run(): Promise<number> {
  if (major < 20 || (major === 20 && minor < 19)) {
    process.stderr.write(`pg-task: expected Node.js 20.19 or later, got ${process.versions.node}\n`);
    return 2;
  }
  const { main } = await import("./main.js");
  return await main();
}

void run().then((code) => (process.exitCode = code));
