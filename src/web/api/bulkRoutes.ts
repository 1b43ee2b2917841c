import { z } from "zod";
import { changeableStates, isFinalState, type TaskState, taskStates } from "../../shared/taskState.js";
import { describeChange, webRemedies } from "../../tasks/commands/describeChange.js";
import { findMatching } from "../../tasks/queries/listTasks.js";
import { BulkChanges } from "../data/bulkChange.js";
import type { WebTable } from "../data/webTable.js";
import { ApiError } from "../errors.js";
import type { Sender } from "../http/mount.js";
import { checkChange, makeChange } from "./changeHandlers.js";
import { changeEffectsSchema, stateChangeSchema } from "./changeSchemas.js";
import { flag, list, model, object, taskIdSchema, text, textOrNull, whole } from "./model.js";
import type { OnTable, Route } from "./route.js";
import { filterFromQuery } from "./taskHandlers.js";
import { taskFilterShape } from "./taskSchemas.js";

const bulkBodySchema = model(
  "BulkChange",
  z.strictObject({
    change: stateChangeSchema,
    filter: z.strictObject(taskFilterShape).meta({ description: "as the parameters of the list" }),
    start: flag("true: begin as soon as the tasks have been counted; default: wait for `start`").default(false),
  }),
);

export const bulkSchema = object("BulkState", {
  id: text(),
  phase: z.enum(["counting", "counted", "running", "done", "stopped", "failed"]),
  matched: whole("how many tasks match, or have been found so far, in states that allow the change"),
  done: whole("how many of them it has tried to change"),
  changed: whole("how many of them it has changed"),
  others: list(
    z.object({ text: text("why not"), tasks: whole("how many"), ids: list(taskIdSchema, "the first of them") }),
    "those that were not changed, by the reason; at most 20 reasons",
  ),
  effects: changeEffectsSchema.nullable().meta({
    description: "what the change would bring about, judged by the first 10,000 tasks; null before they are counted",
  }),
  error: textOrNull("why it has failed"),
});

export type BulkState = z.infer<typeof bulkSchema>;
type BulkBody = z.output<typeof bulkBodySchema>;

const steps = [
  { step: "start", summary: "change the tasks that were counted" },
  { step: "stop", summary: "end it; tasks that it has changed stay changed" },
] as const;

/** All tasks that match a filter, in one change that goes on without further requests. */
export function bulkRoutes(
  onTable: OnTable,
  note: (sender: Sender, table: WebTable, action: string, what: object) => void,
): Route[] {
  const changes = new WeakMap<WebTable, BulkChanges>();
  const changesOf = (table: WebTable): BulkChanges => {
    const known = changes.get(table) ?? new BulkChanges();
    changes.set(table, known);
    return known;
  };
  return [
    onTable("post", "/bulk", {
      summary: "count the tasks that match a filter, and then stop, retry, run now or delete them",
      body: bulkBodySchema,
      response: bulkSchema,
      status: 201,
      handle: async ({ webTable, body, sender }) => {
        const { change, filter, start } = body;
        const states = changedStates(body);
        const request = {
          filter: { ...filterFromQuery(filter, webTable.entry), states },
          waitingFor: filter.waitingFor,
        };
        const finalStates = states.filter(isFinalState);
        const bulk = changesOf(webTable).add(
          {
            find: () => findMatching((work) => webTable.pool.read(work), webTable.table, request),
            readEffects: async (ids) => await checkChange(webTable, { change, ids }),
            change: async (ids) =>
              await makeChange(webTable, change, ids, change === "retry" ? finalStates : undefined),
            describe: (result) => describeChange(change, result, webRemedies),
            onEnd: (changed) => {
              if (changed > 0) note(sender, webTable, change, { changed, filter });
            },
          },
          start,
        );
        return bulk.state();
      },
    }),
    onTable("get", "/bulk/{bulk}", {
      summary: "how far a change of all matching tasks is",
      response: bulkSchema,
      handle: async ({ webTable, bulk }) => changesOf(webTable).get(bulk).state(),
    }),
    ...steps.map(({ step, summary }) =>
      onTable("post", `/bulk/{bulk}/${step}`, {
        summary,
        response: bulkSchema,
        handle: async ({ webTable, bulk }) => {
          const found = changesOf(webTable).get(bulk);
          found[step]();
          return found.state();
        },
      }),
    ),
  ];
}

/** Tasks in other states would all be refused. */
function changedStates({ change, filter }: BulkBody): TaskState[] {
  if (change === "retry" && filter.state === undefined) {
    throw new ApiError(
      "INVALID",
      "filter.state: expected states to retry, such as FAIL: otherwise, tasks that are DONE would run again",
    );
  }
  const wanted = filter.state?.split(",") ?? taskStates;
  const states = changeableStates[change].filter((state) => wanted.some((each) => each === state));
  if (states.length === 0) {
    throw new ApiError("INVALID", `filter.state: expected one of ${changeableStates[change].join(", ")} for ${change}`);
  }
  return states;
}
