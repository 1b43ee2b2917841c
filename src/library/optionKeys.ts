import type { KnownKeys } from "../shared/refuseUnknownKeys.js";
import type { TaskFilter } from "../tasks/types.js";
import type {
  AddOptions,
  CallOptions,
  ChangesOptions,
  DeleteOptions,
  ListOptions,
  TaskClientOptions,
  WaitOptions,
} from "./taskClient.js";

// The options that each method of TaskClient knows.

export const clientKeys: KnownKeys<TaskClientOptions> = {
  schema: true,
  table: true,
  acquireTimeoutMs: true,
  reconnectMs: true,
};
export const callKeys: KnownKeys<CallOptions> = { client: true };
export const addKeys: KnownKeys<AddOptions> = { ...callKeys, ifKeyTaken: true };
export const deleteKeys: KnownKeys<DeleteOptions> = { ...callKeys, running: true };
export const waitKeys: KnownKeys<WaitOptions> = { signal: true };
const filterKeys: KnownKeys<TaskFilter> = { states: true, group: true, text: true, since: true, until: true };
export const changesKeys: KnownKeys<ChangesOptions> = { ...filterKeys, ids: true, signal: true };
export const listKeys: KnownKeys<ListOptions> = {
  ...filterKeys,
  before: true,
  waitingFor: true,
  characters: true,
  pageSize: true,
  signal: true,
};
