import type { TableOptions } from "./options.js";
import type { PausedSchedules } from "../../tasks/pauses.js";

/** The commands that work on the table that the options select, as texts name them. */
const onTables =
  /\bpg-task (?:show|list|add|stop|retry|run-now|delete|pause|resume|prune|groups|why|doctor|accept-copy)(?![\w-])/g;
/** The commands that only need to know the configuration. */
const onConfigurations = /\bpg-task (?:start|check|status)(?![\w-])/g;

/**
 * Adds the options that select the table to the commands in a text. Without these, a command that the user pastes would
 * act on the default table, where another task may have the id.
 */
export function withTableOptions(text: string, { config, entry, table }: TableOptions): string {
  const named = optionText("--config", config);
  const all = `${named}${optionText("--entry", entry)}${optionText("--table", table)}`;
  // A replacement that is a text could contain patterns such as `$&`.
  return text
    .replaceAll(onConfigurations, (command) => `${command}${named}`)
    .replaceAll(onTables, (command) => `${command}${all}`);
}

const optionText = (name: string, value: string | undefined): string =>
  value === undefined ? "" : ` ${name} ${shellWord(value)}`;

export const withOptionsInRemedy = <Result extends { readonly remedy?: string }>(
  result: Result,
  options: TableOptions,
): Result => (result.remedy === undefined ? result : { ...result, remedy: withTableOptions(result.remedy, options) });

export const shellWord = (text: string): string =>
  /^[\w./:@%+,=-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;

export const howToResume = ({ count, first }: PausedSchedules): string =>
  count > first.length
    ? "resume with pg-task resume --schedule and the ids that pg-task list --schedules shows"
    : `resume with pg-task resume --schedule ${first.map(({ id }) => id).join(",")}`;
