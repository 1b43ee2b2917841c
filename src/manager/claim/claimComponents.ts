import type { Log } from "../../shared/log.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { GroupScanner } from "../groups/groupScanner.js";
import type { PendingResults } from "../results/pendingResults.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { RunTimes } from "../sessions/runTimes.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import type { SettingsAge } from "../sessions/settingsAge.js";
import type { Tracing } from "../telemetry/tracing.js";
import type { LedgerRotation } from "../upkeep/ledgerRotation.js";
import type { OwedSuccessors } from "../upkeep/owedSuccessors.js";

export interface ClaimComponents {
  readonly table: TaskTable;
  readonly sessions: SessionPool;
  readonly groups: ActiveGroups;
  readonly groupScanner: GroupScanner;
  readonly pendingResults: PendingResults;
  readonly ledgers: LedgerRotation;
  readonly owed: OwedSuccessors;
  readonly runTimes: RunTimes;
  readonly settingsAge: SettingsAge;
  readonly tracing: Tracing | null;
  readonly log: Log;
}
