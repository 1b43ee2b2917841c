import type { FileParameters } from "../shared/config/parameterTable.js";
import type { WebhookOptions } from "../shared/config/webhooks.js";

/** A secret: its text, or the name of the environment variable that holds it. */
export type Secret =
  | string
  | {
      /** Name of the variable. */
      readonly env: string;
    };

/** Values of parameters, by their full names (docs/configuration.md). */
export type ConfigParameters = {
  readonly [P in keyof FileParameters]?: P extends "pg_http.token" | "pg_http.readonly"
    ? Secret
    : P extends "pg_task.output"
      ? number | string
      : P extends "pg_http.webhooks"
        ? readonly WebhookOptions[]
        : FileParameters[P];
};

/** A task table, served by one manager. It can also give any parameter of its table. */
export type ConfigEntry = ConfigParameters & {
  /** Database. */
  readonly data?: string;
  /** User as which the tasks run. */
  readonly user?: string;
  /** The user's password. */
  readonly password?: Secret;
  /** Connection of an entry on another server. */
  readonly url?: string;
  /** Schema of the table. */
  readonly schema?: string;
  /** Name of the table. */
  readonly table?: string;
  /** How often the table is checked, in ms. */
  readonly sleep?: number;
  /** How often orphans are looked for, as an interval. */
  readonly reset?: string;
  /** Maximum number of tasks of the table that run at once. */
  readonly run?: number;
  /** Whether what is missing is created. */
  readonly create?: boolean;
  /** Whether each task runs as the role that wrote it. */
  readonly users?: boolean;
};

/** A configuration, as the file `pg_task.json` contains it. */
export type Config = ConfigParameters & {
  /** The control connection. */
  readonly url?: string;
  /** The entries, one for each task table. Default: one, for the database and user of the control connection. */
  readonly "pg_task.json"?: readonly ConfigEntry[];
};
