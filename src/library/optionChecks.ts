import { PgTaskError } from "../shared/errors.js";
import { longestTimerMs } from "../shared/backoff.js";
import { maxInt } from "../shared/postgres/serverLimits.js";
import { refuseUnknownKeys } from "../shared/refuseUnknownKeys.js";
import { describeValue } from "../shared/describeValue.js";
import { unstorablePart } from "../shared/storableText.js";
import { columnList, valueKind } from "../shared/taskColumns.js";
import { finalStates, isTaskState, taskStates } from "../shared/taskState.js";
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
 * Refuses options that are not known, and values that an option cannot have. A program without types can pass anything,
 * and the driver or a timer would then silently do something else. A value that is undefined counts as left out, except
 * as the client.
 *
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

/** Such a client was meant for the caller's transaction, and the call would silently use another connection. */
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
 * Refuses values of a task that are of the wrong type for their column, and would become an odd text: a group `["a"]`, for
 * example, would become `{"a"}`. Whether this is a task at all, its keys, and its other values are checked where it is
 * converted to a row. So is null, by the table, which says which columns allow it.
 *
 * @throws PgTaskError USAGE
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
const isWhole = (value: unknown, min: number, max: number): boolean =>
  Number.isInteger(value) && Number(value) >= min && Number(value) <= max;

const isLogger = (value: unknown): boolean =>
  isObject(value) && loggerMethods.every((method) => typeof Reflect.get(value, method) === "function");

const flag: OptionCheck = { expected: "true or false", holds: (value) => typeof value === "boolean" };
const text: OptionCheck = { expected: "a string", holds: (value) => typeof value === "string" };
const name: OptionCheck = { expected: "a name", holds: (value) => typeof value === "string" && value !== "" };
const time: OptionCheck = {
  expected: "a Date, or a time in PostgreSQL's syntax",
  holds: (value) => typeof value === "string" || (value instanceof Date && !Number.isNaN(value.getTime())),
};
const sent = (check: OptionCheck): OptionCheck => ({ ...check, isSent: true });
const milliseconds: OptionCheck = {
  expected: `a number of ms from 0 to ${longestTimerMs}`,
  holds: (value) => typeof value === "number" && value >= 0 && value <= longestTimerMs,
};
const signal: OptionCheck = {
  expected: "an AbortSignal",
  holds: (value) => isObject(value) && "aborted" in value && "addEventListener" in value,
};
const id: OptionCheck = { expected: "a task's id", holds: isTaskId };
const ids: OptionCheck = {
  expected: "an array of tasks' ids",
  holds: (value) => Array.isArray(value) && value.every(isTaskId),
};

export const clientChecks: OptionChecks<TaskClientOptions> = {
  schema: sent(name),
  table: sent(name),
  acquireTimeoutMs: milliseconds,
  answerTimeoutMs: {
    expected: `a number of ms from 1 to ${longestTimerMs}, or Infinity`,
    holds: (value) => typeof value === "number" && value >= 1 && (value <= longestTimerMs || value === Infinity),
  },
  reconnectMs: {
    expected: "a number of ms from 0, or Infinity",
    holds: (value) => typeof value === "number" && value >= 0,
  },
};

export const callChecks: OptionChecks<CallOptions> = {
  client: {
    expected:
      "a Client of pg, or one that the connect() of a Pool returns (a Pool itself would not use your transaction)",
    holds: isCallClient,
  },
};

export const addChecks: OptionChecks<AddOptions> = {
  ...callChecks,
  ifKeyTaken: {
    expected: '"error", "skip" or "join"',
    holds: (value) => value === "error" || value === "skip" || value === "join",
  },
};

const orNull = ({ expected, holds }: OptionCheck): OptionCheck => ({
  expected,
  holds: (value) => value === null || holds(value),
});
/** What a value of each kind has to be. `args` and intervals are checked where they are converted. */
const kindChecks: Readonly<Partial<Record<ReturnType<typeof valueKind>, OptionCheck>>> = {
  time,
  text,
  char: text,
  flag,
  // How large the number can be depends on the column, which can be of another type in a table that was adopted.
  number: { expected: "a whole number", holds: Number.isSafeInteger },
  id,
  ids,
  list: {
    expected: "an array of strings",
    holds: (value) => Array.isArray(value) && value.every((each) => typeof each === "string"),
  },
};

const taskChecks: Readonly<Record<string, OptionCheck>> = Object.fromEntries(
  columnList.flatMap((column) => {
    const check = kindChecks[valueKind(column)];
    return column.by !== "producer" || column.name === "input" || check === undefined
      ? []
      : [[column.name, orNull(check)]];
  }),
);

export const retryChecks: OptionChecks<RetryOptions> = {
  ...callChecks,
  // A list without states is rather a mistake than a wish to retry nothing.
  states: {
    expected: `an array of at least one state of tasks that have ended (${finalStates.join(", ")})`,
    holds: (value) =>
      Array.isArray(value) && value.length > 0 && value.every((each) => finalStates.some((state) => state === each)),
  },
};

export const deleteChecks: OptionChecks<DeleteOptions> = { ...callChecks, running: flag };

export const waitChecks: OptionChecks<WaitOptions> = { signal };

const isStates = (value: unknown): value is unknown[] => Array.isArray(value) && value.every(isTaskState);

const filterChecks: OptionChecks<TaskFilter> = {
  states: { expected: `an array of states (${taskStates.join(", ")})`, holds: isStates },
  group: sent(text),
  key: sent(text),
  text: sent(text),
  since: sent(time),
  until: sent(time),
};

export const changesChecks: OptionChecks<ChangesOptions> = {
  ...filterChecks,
  // No task would match, and the iterator would neither yield anything nor end.
  states: {
    expected: `an array of at least one state (${taskStates.join(", ")})`,
    holds: (value) => isStates(value) && value.length > 0,
  },
  ids,
  signal,
};

/**
 * The values of a task's columns can change while it is followed, so they would not say which changes are wanted.
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
  characters: { expected: `a whole number from 0 to ${maxInt}`, holds: (value) => isWhole(value, 0, maxInt) },
  pageSize: { expected: `a whole number from 1 to ${maxInt}`, holds: (value) => isWhole(value, 1, maxInt) },
  signal,
};

export const startChecks: OptionChecks<StartOptions> = {
  config: {
    expected: "a configuration, or the path of a file",
    holds: (value) => (typeof value === "string" ? value !== "" : Array.isArray(value) || isOptions(value)),
  },
  url: text,
  embedded: {
    expected: "true, false, or an object",
    holds: (value) => typeof value === "boolean" || isOptions(value),
  },
  logger: {
    expected: `false, or a logger with the methods ${loggerMethods.join(", ")}`,
    holds: (value) => value === false || isLogger(value),
  },
  signal,
  signals: flag,
};

export const embeddedChecks: OptionChecks<EmbeddedServerOptions> = {
  data: name,
  port: { expected: "a whole number from 1 to 65535", holds: (value) => isWhole(value, 1, 65_535) },
};

export const stopChecks: OptionChecks<NonNullable<Parameters<PgTask["stop"]>[0]>> = { graceMs: milliseconds };
