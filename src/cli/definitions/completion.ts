import { completeValuesName } from "../commands/completeValues.js";
import type { CommandDefinition, OptionDefinition } from "./definitions.js";

export const shells = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof shells)[number];

/** Returns the completion script of a shell. */
export function completionScript(shell: Shell, commands: readonly CommandDefinition[]): string {
  if (shell === "fish") return fishScript(commands);
  const script = bashScript(commands);
  // zsh runs completion functions for bash if it is told to.
  return shell === "bash"
    ? script
    : `autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n${script}`;
}

const optionNames = (options: readonly OptionDefinition[]): readonly string[] => options.flatMap(({ names }) => names);

const withValue = (options: readonly OptionDefinition[], value: OptionDefinition["value"]): readonly string[] =>
  optionNames(options.filter((option) => option.value === value));

const statesOf = (options: readonly OptionDefinition[]): readonly string[] => options.flatMap(({ words }) => words);

/** Returns a pattern of `case` that matches these words. The pattern matches nothing if there are none. */
const pattern = (words: readonly string[]): string => (words.length === 0 ? "''" : words.join("|"));

function bashScript(commands: readonly CommandDefinition[]): string {
  const names = commands.flatMap((command) => command.names);
  const cases = commands.map(
    ({ names: called, options, choices }) => `    ${pattern(called)})
      case "$previous" in
        ${pattern(withValue(options, "path"))}) COMPREPLY=($(compgen -f -- "$word")); return ;;
        ${pattern(withValue(options, "table"))}) _pg_task_values table; return ;;
        ${pattern(withValue(options, "entry"))}) _pg_task_values entry; return ;;
        ${pattern(withValue(options, "states"))}) _pg_task_list "${statesOf(options).join(" ")}"; return ;;
        ${pattern(withValue(options, "other"))}) return ;;
      esac
      words="${[...choices, ...optionNames(options)].join(" ")}" ;;`,
  );
  return `# Completion of pg-task for bash and zsh
# Completes the names of tables or entries in the configuration.
_pg_task_values() {
  local index config=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    case "\${COMP_WORDS[index]}" in -c|--config) config=(--config "\${COMP_WORDS[index+1]}") ;; esac
  done
  COMPREPLY=($(compgen -W "$("\${COMP_WORDS[0]}" ${completeValuesName} "$1" "\${config[@]}" 2>/dev/null)" -- "$word"))
}
# Completes the last word of a list with commas.
_pg_task_list() {
  local before=""
  case "$word" in *,*) before="\${word%,*}," ;; esac
  COMPREPLY=($(compgen -P "$before" -W "$1" -- "\${word##*,}"))
}
_pg_task() {
  local word="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "${names.join(" ")} --help --version" -- "$word"))
    return
  fi
  case "\${COMP_WORDS[1]}" in
    help) words="${names.join(" ")}" ;;
${cases.join("\n")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _pg_task pg-task
`;
}

/** Quotes a text for fish. */
const fishQuoted = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;

function fishScript(commands: readonly CommandDefinition[]): string {
  const names = commands.flatMap((command) => command.names);
  const first = `-n ${fishQuoted(`not __fish_seen_subcommand_from ${names.join(" ")}`)}`;
  const lines = commands.flatMap((command) => {
    const { names: called, description, options } = command;
    const after = `-n ${fishQuoted(`__fish_seen_subcommand_from ${called.join(" ")}`)}`;
    return [
      ...command.choices.map((choice) => `complete -c pg-task -f ${after} -a ${choice}`),
      ...called.map((name) => `complete -c pg-task -f ${first} -a ${name} -d ${fishQuoted(description)}`),
      ...options.map((option) => `complete -c pg-task ${after} ${fishOption(option)}`),
    ];
  });
  return `# Completion of pg-task for fish\n${lines.join("\n")}\n`;
}

function fishOption({ names, description, value, words }: OptionDefinition): string {
  const flags = names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const valuesOf = (name: string): string =>
    `-x -a ${fishQuoted(`(pg-task ${completeValuesName} ${name} 2>/dev/null)`)}`;
  const kind = {
    path: "-r -F",
    table: valuesOf("table"),
    entry: valuesOf("entry"),
    // In a list with commas, fish completes each word by itself.
    states: `-x -a ${fishQuoted(`(__fish_append , ${words.join(" ")})`)}`,
    other: "-x",
  };
  const takes = value === null ? [] : [kind[value]];
  return [...flags, ...takes, `-d ${fishQuoted(description)}`].join(" ");
}
