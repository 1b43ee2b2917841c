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

/** Returns a pattern of `case` that matches these words. The pattern matches nothing if there are none. */
const pattern = (words: readonly string[]): string => (words.length === 0 ? "''" : words.join("|"));

function bashScript(commands: readonly CommandDefinition[]): string {
  const names = commands.flatMap((command) => command.names);
  const cases = commands.map(
    ({ names: called, options }) => `    ${pattern(called)})
      case "$previous" in
        ${pattern(withValue(options, "path"))}) COMPREPLY=($(compgen -f -- "$word")); return ;;
        ${pattern(withValue(options, "other"))}) return ;;
      esac
      words="${optionNames(options).join(" ")}" ;;`,
  );
  return `# Completion of pg-task for bash and zsh
_pg_task() {
  local word="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "${names.join(" ")} --help --version" -- "$word"))
    return
  fi
  case "\${COMP_WORDS[1]}" in
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
  const lines = commands.flatMap(({ names: called, description, options }) => {
    const after = `-n ${fishQuoted(`__fish_seen_subcommand_from ${called.join(" ")}`)}`;
    return [
      ...called.map((name) => `complete -c pg-task -f ${first} -a ${name} -d ${fishQuoted(description)}`),
      ...options.map((option) => `complete -c pg-task ${after} ${fishOption(option)}`),
    ];
  });
  return `# Completion of pg-task for fish\n${lines.join("\n")}\n`;
}

function fishOption({ names, description, value }: OptionDefinition): string {
  const flags = names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const kind = { path: "-r -F", other: "-x" };
  const takes = value === null ? [] : [kind[value]];
  return [...flags, ...takes, `-d ${fishQuoted(description)}`].join(" ");
}
