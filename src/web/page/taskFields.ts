/** How a field of the form is edited, and how its text becomes a value of the request. */
type FieldKind = "text" | "long" | "flag" | "whole" | "ids" | "list" | "json" | "upon";

/** An option of a task in the form. */
export interface Field {
  readonly name: string;
  readonly kind: FieldKind;
  /** What it means. */
  readonly hint: string;
  /** Whether it is a user-defined column. */
  readonly own?: boolean;
}

const field = (name: string, kind: FieldKind, hint: string): Field => ({ name, kind, hint });

/** Options that are shown at once. */
export const mainFields: readonly Field[] = [
  field("input", "long", "the SQL to run"),
  field("args", "json", "JSON with values for the SQL: an array for $1, $2 …, or an object"),
  field("group", "text", "tasks of a group run one after another, unless max allows more"),
  field("key", "text", "at most one task with this key waits, and at most one runs"),
  field("retry", "whole", "how often it is tried again after an error"),
  field("after", "ids", "ids of older tasks for whose end it waits, separated by commas"),
];

/** The other options, by subject. */
export const moreFields: readonly { readonly title: string; readonly fields: readonly Field[] }[] = [
  {
    title: "Schedule",
    fields: [
      field("rule", "text", "cron expression, RRULE, or a query that returns the next time"),
      field("zone", "text", "time zone of the rule"),
      field("repeat", "text", "interval at which it repeats"),
      field("catchup", "flag", "make up for every missed time"),
      field("overlap", "flag", "plan the next run when this one starts"),
      field("drift", "flag", "repeat relative to the end, not to the plan"),
    ],
  },
  {
    title: "Limits and errors",
    fields: [
      field("timeout", "text", "interval: longest run time, 0 is unlimited"),
      field("max", "whole", "how many others of its group may run at the same time; negative: pause in ms"),
      field("gap", "text", "interval: least time since the last start of its group"),
      field("active", "text", "interval: how late it may start before it expires"),
      field("backoff", "text", "interval: pause before the first retry, doubled for each further one"),
      field("sqlstate", "list", "errors that are tried again, such as 40, 55P03"),
      field("upon", "upon", "how the tasks for which it waits have to end"),
    ],
  },
  {
    title: "Output and row",
    fields: [
      field("header", "flag", "column names in output"),
      field("string", "flag", "quote only strings"),
      field("delimiter", "text", "character that separates output columns"),
      field("escape", "text", "escape character in output"),
      field("quote", "text", "quote character in output"),
      field("null", "text", "represents null in output"),
      field("delete", "flag", "delete the finished row if output and error are null"),
      field("keep", "text", "interval: how long the finished row is kept, 0 is forever"),
      field("data", "long", "free for your own use"),
      field("parent", "text", "id of the task that is recorded as its parent"),
    ],
  },
  {
    title: "Session",
    fields: [
      field("remote", "text", "connection string of another database"),
      field("atomic", "flag", "commit effect and DONE in one transaction if the SQL allows it"),
      field("save", "flag", "keep session state between tasks"),
      field("count", "whole", "how many tasks its session runs before it ends"),
      field("live", "text", "interval: maximum age of its session"),
    ],
  },
];

/** Converts the text of a field to its value in the request. An Error says what is wrong with the text. */
export function valueOfField({ name, kind, own }: Field, text: string): unknown {
  switch (kind) {
    case "flag":
      return text === "true";
    case "whole":
      return /^\s*[+-]?\d{1,9}\s*$/.test(text) ? Number(text) : new Error("Expected a whole number.");
    case "ids": {
      const ids = listOf(text);
      return ids.every((id) => /^-?\d{1,19}$/.test(id)) ? ids : new Error("Expected task ids, separated by commas.");
    }
    case "list":
      return listOf(text);
    case "json":
      return jsonOf(text);
    default:
      if (name === "remote" && own !== true && /\*\*\*/.test(text))
        return new Error("Enter the password instead of ***.");
      return name === "parent" && own !== true ? text.trim() : text;
  }
}

const listOf = (text: string): string[] => text.split(/[\s,]+/).filter((each) => each !== "");

function jsonOf(text: string): unknown {
  // JavaScript would silently round longer numbers.
  if (/\d[\d.]{15}/.test(text.replace(/"(?:[^"\\]|\\.)*"/g, '""'))) {
    return new Error("Numbers of more than 15 digits would be rounded: write them as strings.");
  }
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" ? value : new Error("Expected an array or an object.");
  } catch (error) {
    return new Error(`This is not valid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}
