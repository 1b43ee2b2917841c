import { fileURLToPath } from "node:url";

/** Returns the absolute path for a path that is relative to this file. The compiled file is in `bench/dist`. */
const within = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

export const folders = {
  root: within("../../"),
  bench: within("../"),
  results: within("../results/"),
  quickResults: within("../results/quick/"),
  peers: within("./peers/"),
  images: within("../../docs/img/"),
} as const;

export const files = {
  program: within("../../dist/src/cli/bin.js"),
  page: within("../results/README.md"),
} as const;
