import type { StartupSettings } from "../shared/postgres/startupOptions.js";

/**
 * For connections that ask about a table: few rows of many are wanted, which are found by index. The
 * server's own default takes a page that is read by itself for four times as dear, as on a turning disk,
 * and goes through the whole table instead.
 */
export const readingSettings: StartupSettings = {
  random_page_cost: 1.1,
};
