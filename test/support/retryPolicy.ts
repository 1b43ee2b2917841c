import type { RetryPolicy } from "../../src/manager/model/settings.js";

export const retryPolicy: RetryPolicy = { sqlstates: ["!42", "!0A"], ceilingMs: 3_600_000 };
