import type { CommandDefinition, OptionDefinition } from "./definitions.js";

export const shells = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof shells)[number];

/** The name of the command that the completion scripts call. The help does not list it. */
export const completeValuesName = "complete-values";

/** Returns the completion script of a shell. */
export function completionScript(shell: Shell, commands: readonly CommandDefinition[]): string {
  if (shell === "fish") return fishScript(commands);
  return shell === "bash" ? bashScript(commands) : zshScript(commands);
}

const optionNames = (options: readonly OptionDefinition[]): readonly string[] => options.flatMap(({ names }) => names);

const withValue = (options: readonly OptionDefinition[], value: OptionDefinition["value"]): readonly string[] =>
  optionNames(options.filter((option) => option.value === value));

const statesOf = (options: readonly OptionDefinition[]): readonly string[] => options.flatMap(({ words }) => words);

/**
 * Returns the cases for bash and zsh. They use the variables `place`, `command` and `previous`, and functions that each
 * shell defines in its own way.
 */
function casesOf(commands: readonly CommandDefinition[]): string {
  const names = commands.flatMap((command) => command.names).join(" ");
  const cases = commands.map(({ names: called, options, choices }) => {
    const values = [
      [withValue(options, "path"), "_pg_task_files"],
      [withValue(options, "table"), "_pg_task_values table"],
      [withValue(options, "entry"), "_pg_task_values entry"],
      [withValue(options, "states"), `_pg_task_list ${statesOf(options).join(" ")}`],
      [withValue(options, "other"), ""],
    ] as const;
    return `    ${called.join("|")})
      case "$previous" in
${values.map(([flags, action]) => (flags.length === 0 ? "" : `        ${flags.join("|")}) ${action} ;;\n`)).join("")}\
        *) _pg_task_words ${[...choices, ...optionNames(options)].join(" ")} ;;
      esac ;;`;
  });
  return `  if [ "$place" -eq 1 ]; then
    _pg_task_words ${names} --help --version
    return
  fi
  case "$command" in
    help) _pg_task_words ${names} ;;
${cases.join("\n")}
  esac`;
}

/**
 * bash evaluates the words that `compgen -W` gets, and the word on the command line still has its quotes. Names of the
 * configuration are therefore compared and quoted by pg-task itself.
 */
const bashScript = (commands: readonly CommandDefinition[]): string => `# Completion of pg-task for bash
_pg_task_words() { COMPREPLY=($(compgen -W "$*" -- "$word")); }
_pg_task_files() { compopt -o default; }
# Completes the names of tables or entries in the configuration.
_pg_task_values() {
  mapfile -d '' -t COMPREPLY < <(pg-task ${completeValuesName} bash "$1" -- "\${words[@]:1}" "$word" "$replaced" 2>/dev/null)
}
# Completes the last word of a list with commas.
_pg_task_list() {
  local before=""
  case "$word" in *,*) before="\${word%,*}," ;; esac
  COMPREPLY=($(compgen -P "$before" -W "$*" -- "\${word##*,}"))
}
# Bash splits words at : and = unless they are quoted. This joins the parts that stand together on the line.
_pg_task() {
  local rest="$COMP_LINE" part gap words=()
  for part in "\${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    gap="\${rest%%[![:blank:]]*}"
    rest="\${rest#"$gap"}"
    rest="\${rest#"$part"}"
    if [ -n "$gap" ] || [ "\${#words[@]}" -eq 0 ]; then words+=("$part"); else words[-1]+="$part"; fi
  done
  local place=$((\${#words[@]} - 1)) command="\${words[1]}" replaced="$part"
  local previous="\${words[place-1]}" word="\${words[place]}"
  case "$replaced" in [:=]) replaced="" ;; esac
  case "$word" in "$replaced") ;; --*=*) previous="\${word%%=*}" word="\${word#*=}" ;; esac
  unset "words[place]"
  COMPREPLY=()
${casesOf(commands)}
}
complete -F _pg_task pg-task
`;

const zshScript = (commands: readonly CommandDefinition[]): string => `# Completion of pg-task for zsh
autoload -U +X compinit && compinit
_pg_task_words() { compadd -- "$@" }
_pg_task_files() { _files }
# Completes the names of tables or entries in the configuration.
_pg_task_values() {
  compadd -- \${(0)"$(pg-task ${completeValuesName} zsh "$1" -- "\${(@Q)words[2,CURRENT]}" 2>/dev/null)"}
}
# Completes the last word of a list with commas.
_pg_task_list() { compset -P '*,'; compadd -- "$@" }
_pg_task() {
  local place=$((CURRENT - 1)) command="$words[2]" previous="$words[CURRENT-1]"
${casesOf(commands)}
}
compdef _pg_task pg-task
`;

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
    `-x -a ${fishQuoted(`(pg-task ${completeValuesName} fish ${name} -- (commandline -opc)[2..] 2>/dev/null | string split0)`)}`;
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
