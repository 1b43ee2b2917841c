/** A chain that runs alone, or is the next to do so: nothing else of its group or table starts. */
export interface OpenTurn {
  /** The id of the chain's first task. */
  readonly task: string;
  /** Null: the whole table. */
  readonly group: string | null;
  /** Whether it runs. Otherwise, it waits for the end of what runs. */
  readonly begun: boolean;
}

export const describeTurn = ({ group, begun }: OpenTurn): string => {
  const where = group === null ? "the table" : `group ${JSON.stringify(group)}`;
  return begun ? `runs alone in ${where}` : `is the next to run alone in ${where}, when what runs there has ended`;
};
