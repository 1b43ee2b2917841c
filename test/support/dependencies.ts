import { Dependencies } from "../../src/manager/dependencies/dependencies.js";
import { ActiveGroups } from "../../src/manager/groups/groups.js";
import { GroupScanner } from "../../src/manager/groups/groupScanner.js";
import { Statistics } from "../../src/manager/telemetry/statistics.js";
import type { TaskTable } from "../../src/manager/schema/taskTable.js";
import { silentLog as log } from "./taskTables.js";

/** Dependencies of a manager whose tasks do not wait for each other. */
export const noDependencies = (table: TaskTable): Dependencies =>
  new Dependencies({
    table,
    groupScanner: new GroupScanner({ table, groups: new ActiveGroups(), log }),
    log,
    statistics: new Statistics({ send: () => {}, load: () => ({ running: 0, sessions: 0 }) }),
  });
