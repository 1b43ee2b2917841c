import { PgTaskError } from "../shared/errors.js";
import { longestTimerMs } from "../shared/backoff.js";
import { maxInt } from "../shared/postgres/serverLimits.js";
import { refuseUnknownKeys } from "../shared/refuseUnknownKeys.js";
import { describeValue } from "../shared/describeValue.js";
import { unstorablePart } from "../shared/storableText.js";
import { columnList, valueKind } from "../shared/taskColumns.js";
import { finalStates, isFinalState, isTaskState, taskStates } from "../shared/taskState.js";
import { basePattern } from "../shared/config/listenAddress.js";
import { isPropertyBag } from "../tasks/commands/toRow.js";
import type { TaskFilter } from "../tasks/types.js";
import { isCallClient } from "./connections.js";
import { loggerMethods } from "./logger.js";
import type { PgTask } from "./pgTask.js";
import type {
  EmbeddedServerOptions,
  StartOptions,
  AddOptions,
  CallOptions,
  ChangesOptions,
  DeleteOptions,
  ListOptions,
  RetryOptions,
  TaskClientOptions,
  WaitOptions,
  WebHandlerOptions,
} from "./options.js";
import { isTaskId } from "./taskId.js";

interface OptionCheck {
  /** Continues "expected OPTION to be …". */
  readonly expected: string;
  readonly holds: (value: unknown) => boolean;
  /** Whether a text goes into a statement, so that it is refused if PostgreSQL cannot store it. */
  readonly isSent?: boolean;
}

type OptionChecks<T> = Readonly<Record<keyof T, OptionCheck>>;

/**
 * A program without types can pass anything, and the driver or a timer would silently do something else. A value that
 * is undefined counts as left out, except as the client.
 *
 * @param what such as "an option of start"
 * @throws PgTaskError USAGE
 */
export function checkOptions(given: unknown, checks: Readonly<Record<string, OptionCheck>>, what: string): void {
  refuseClientAlone(given, checks);
  if (!isOptions(given)) {
    throw new PgTaskError("USAGE", `expected an object with options, got ${describeOther(given)}`);
  }
  refuseUnknownKeys(given, checks, what);
  refuseUndefinedClient(given, checks);
  checkValues(given, checks);
}

/** The properties of a Client or Pool in place of options would be called unknown options. */
function refuseClientAlone(given: unknown, checks: Readonly<Record<string, OptionCheck>>): void {
  if (!isObject(given) || typeof Reflect.get(given, "query") !== "function") return;
  const isClient = isCallClient(given);
  const hint = isClient && Object.hasOwn(checks, "client") ? ": write { client }" : "";
  throw new PgTaskError("USAGE", `expected an object with options, got a ${isClient ? "Client" : "Pool"}${hint}`);
}

/** It was meant for the caller's transaction, and the call would silently use another connection. */
function refuseUndefinedClient(given: object, checks: Readonly<Record<string, OptionCheck>>): void {
  const isGiven = Object.hasOwn(checks, "client") && Object.hasOwn(given, "client");
  if (!isGiven || Reflect.get(given, "client") !== undefined) return;
  throw new PgTaskError(
    "USAGE",
    "expected client to be a Client of pg, got undefined: leave client out if the call is not for your transaction",
  );
}

/** Texts are not shown, because the likeliest is a URL with a password. */
function describeOther(given: unknown): string {
  if (typeof given === "string") return "a string";
  if (Array.isArray(given)) return "an array";
  return isObject(given) ? "another object" : describeValue(given);
}

/**
 * Values of the wrong type would become an odd text: a group `["a"]` would become `{"a"}`. Everything else about a task
 * is checked where it is converted to a row, and null by the table, which says which columns allow it.
 */
export function checkTask(given: unknown): void {
  if (isObject(given)) checkValues(given, taskChecks);
}

function checkValues(given: object, checks: Readonly<Record<string, OptionCheck>>): void {
  for (const [name, value] of Object.entries(given)) {
    const check = Object.hasOwn(checks, name) ? checks[name] : undefined;
    if (value === undefined || check === undefined) continue;
    if (!check.holds(value)) {
      throw new PgTaskError("USAGE", `expected ${name} to be ${check.expected}, got ${describeValue(value)}`);
    }
    const problem = check.isSent === true && typeof value === "string" ? unstorablePart(value) : null;
    if (problem !== null) {
      throw new PgTaskError("USAGE", `expected ${name} without ${problem}, got ${describeValue(value)}`);
    }
  }
}

const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;
/** Whether this is an object with options, and no other one, such as a Date or a signal, which has none of them. */
const isOptions = (value: unknown): value is object => isObject(value) && !Array.isArray(value) && isPropertyBag(value);

const isLogger = (value: unknown): boolean =>
  isObject(value) && loggerMethods.every((method) => typeof Reflect.get(value, method) === "function");

const check = (expected: string, holds: OptionCheck["holds"]): OptionCheck => ({ expected, holds });
const sent = (given: OptionCheck): OptionCheck => ({ ...given, isSent: true });
const arrayOf = (expected: string, holds: OptionCheck["holds"]): OptionCheck =>
  check(expected, (value) => Array.isArray(value) && value.every(holds));
const filled = (given: OptionCheck): OptionCheck =>
  check(given.expected, (value) => given.holds(value) && Array.isArray(value) && value.length > 0);

const flag = check("true or false", (value) => typeof value === "boolean");
const text = check("a string", (value) => typeof value === "string");
const name = check("a name", (value) => typeof value === "string" && value !== "");
const time = check(
  "a Date, or a time in PostgreSQL's syntax",
  (value) => typeof value === "string" || (value instanceof Date && !Number.isNaN(value.getTime())),
);
const milliseconds = check(
  `a number of ms from 0 to ${longestTimerMs}`,
  (value) => typeof value === "number" && value >= 0 && value <= longestTimerMs,
);
const whole = (min: number, max: number): OptionCheck =>
  check(
    `a whole number from ${min} to ${max}`,
    (value) => Number.isInteger(value) && Number(value) >= min && Number(value) <= max,
  );
const signal = check("an AbortSignal", (value) => isObject(value) && "aborted" in value && "addEventListener" in value);
const id = check("a task's id", isTaskId);
const ids = arrayOf("an array of tasks' ids", isTaskId);

export const clientChecks: OptionChecks<TaskClientOptions> = {
  schema: sent(name),
  table: sent(name),
  acquireTimeoutMs: milliseconds,
  answerTimeoutMs: check(
    `a number of ms from 1 to ${longestTimerMs}, or Infinity`,
    (value) => value === Infinity || (milliseconds.holds(value) && Number(value) >= 1),
  ),
  reconnectMs: check("a number of ms from 0, or Infinity", (value) => typeof value === "number" && value >= 0),
};

export const callChecks: OptionChecks<CallOptions> = {
  client: check(
    "a Client of pg, or one that the connect() of a Pool returns (a Pool itself would not use your transaction)",
    isCallClient,
  ),
};

export const addChecks: OptionChecks<AddOptions> = {
  ...callChecks,
  signal,
  ifKeyTaken: check('"error", "skip" or "join"', (value) => value === "error" || value === "skip" || value === "join"),
};

/** What a value of each kind has to be. `args` and intervals are checked where they are converted. */
const kindChecks: Readonly<Partial<Record<ReturnType<typeof valueKind>, OptionCheck>>> = {
  time,
  text,
  char: text,
  flag,
  // How large the number can be depends on the column, which can be of another type in a table that was adopted.
  number: check("a whole number", Number.isSafeInteger),
  id,
  ids,
  list: arrayOf("an array of strings", text.holds),
};

const taskChecks: Readonly<Record<string, OptionCheck>> = Object.fromEntries(
  columnList.flatMap((column) => {
    const known = kindChecks[valueKind(column)];
    if (column.by !== "producer" || column.name === "input" || known === undefined) return [];
    return [[column.name, check(known.expected, (value) => value === null || known.holds(value))]];
  }),
);

export const retryChecks: OptionChecks<RetryOptions> = {
  ...callChecks,
  // A list without states is rather a mistake than a wish to retry nothing.
  states: filled(
    arrayOf(`an array of at least one state of tasks that have ended (${finalStates.join(", ")})`, isFinalState),
  ),
};

export const deleteChecks: OptionChecks<DeleteOptions> = { ...callChecks, running: flag };

export const waitChecks: OptionChecks<WaitOptions> = { signal };

const filterChecks: OptionChecks<TaskFilter> = {
  states: arrayOf(`an array of states (${taskStates.join(", ")})`, isTaskState),
  group: sent(text),
  key: sent(text),
  role: sent(text),
  text: sent(text),
  since: sent(time),
  until: sent(time),
};

export const changesChecks: OptionChecks<ChangesOptions> = {
  ...filterChecks,
  // No task would match an empty one, and the iterator would neither yield anything nor end.
  states: filled(arrayOf(`an array of at least one state (${taskStates.join(", ")})`, isTaskState)),
  ids,
  signal,
};

/**
 * A task's columns can change while it is followed, so conditions do not say which changes are wanted.
 *
 * @throws PgTaskError USAGE
 */
export function refuseConditions(filter: TaskFilter): void {
  const names = Object.entries(filter).flatMap(([key, value]) => (value === undefined ? [] : [key]));
  if (names.length === 0) return;
  const conditions = names.join(" and ");
  throw new PgTaskError("USAGE", `expected ids or ${conditions}, got both: remove ids, or remove ${conditions}`);
}

export const listChecks: OptionChecks<ListOptions> = {
  ...filterChecks,
  before: id,
  waitingFor: id,
  characters: whole(0, maxInt),
  pageSize: whole(1, maxInt),
  signal,
};

export const startChecks: OptionChecks<StartOptions> = {
  config: check("a configuration, or the path of a file", (value) =>
    typeof value === "string" ? value !== "" : Array.isArray(value) || isOptions(value),
  ),
  url: text,
  embedded: check("true, false, or an object", (value) => typeof value === "boolean" || isOptions(value)),
  logger: check(
    `false, or a logger with the methods ${loggerMethods.join(", ")}`,
    (value) => value === false || isLogger(value),
  ),
  signal,
  signals: flag,
};

export const embeddedChecks: OptionChecks<EmbeddedServerOptions> = { data: name, port: whole(1, 65_535) };

export const webHandlerChecks: OptionChecks<WebHandlerOptions> = {
  base: check(
    "a path that begins with a slash and does not end with one",
    (value) => typeof value === "string" && basePattern.test(value),
  ),
  login: check("a function", (value) => typeof value === "function"),
};

export const stopChecks: OptionChecks<NonNullable<Parameters<PgTask["stop"]>[0]>> = { graceMs: milliseconds };
