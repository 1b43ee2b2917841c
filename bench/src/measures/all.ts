import type { Measure } from "./measure.js";
import { throughput } from "./throughput.js";

/** In the order of the page. */
export const measures: readonly Measure[] = [throughput];
