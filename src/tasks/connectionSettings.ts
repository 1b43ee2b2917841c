import type { StartupSettings } from "../shared/postgres/startupOptions.js";

/**
 * Settings for connections that read a few rows of a large table by index. By default, the planner assumes that a
 * random page read costs four times as much as a sequential one, as on a spinning disk. With this assumption, it would
 * scan the whole table rather than use the index.
 */
export const indexScanSettings: StartupSettings = {
  random_page_cost: 1.1,
};
