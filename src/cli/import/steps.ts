import type { TaskTable } from "../../manager/schema/taskTable.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { literal } from "../../shared/postgres/quoting.js";

/** A step of a job that waits for the one before. */
export interface Step {
  readonly input: string;
  /** Whether the next steps run although this one has failed. */
  readonly ignoresErrors: boolean;
  readonly remote?: string | undefined;
  readonly timeout?: string | undefined;
  readonly args?: unknown;
}

interface Chain {
  /** Of the steps, so that they do not run beside those of the run before. */
  readonly key: string;
  readonly group: string;
  /** SQL that runs if a step has failed. */
  readonly fail?: string | undefined;
  /** Time limit of all steps together. It has no effect if `hasParts`. */
  readonly within?: string | undefined;
  /** Of what nothing else runs beside the chain. */
  readonly alone?: "table" | undefined;
}

/** The step that ends the first part of such a chain plans the rest, which is another chain. */
export function hasParts(steps: readonly Step[]): boolean {
  const firstIgnored = steps.findIndex(({ ignoresErrors }) => ignoresErrors);
  return firstIgnored !== -1 && firstIgnored !== steps.length - 1;
}

/** A single step is a task itself. Several are planned by a task. */
export function stepsInput(table: TaskTable, steps: readonly Step[], chain: Chain): Omit<Step, "ignoresErrors"> {
  const [step, ...others] = steps;
  if (step === undefined || others.length > 0 || chain.fail !== undefined)
    return { input: chainInput(table, steps, chain) };
  const { ignoresErrors: _, input, ...columns } = step;
  return { input, ...omitUndefined(columns) };
}

function chainInput({ qualifiedChain }: TaskTable, steps: readonly Step[], chain: Chain): string {
  const { key, group, fail } = chain;
  const json = literal(JSON.stringify(toChain(qualifiedChain, steps, chain)));
  const last = fail === undefined ? "" : `, fail => ${literal(fail)}`;
  return `SELECT ${qualifiedChain}(${json}::pg_catalog.jsonb${last}, key => ${literal(key)}, "group" => ${literal(group)})`;
}

/**
 * A step that waits for the end of an ignored one would also run if that one is GONE because a step before has failed.
 * So what comes after steps that must not fail is planned by the last of these.
 */
function toChain(chainFunction: string, steps: readonly Step[], chain: Chain): object[] {
  const [first, ...rest] = steps;
  if (first === undefined) return [];
  const firstIgnored = steps.findIndex(({ ignoresErrors }) => ignoresErrors);
  const { alone, within } = chain;
  if (!hasParts(steps)) return [{ ...toStep(first), within, alone }, ...rest.map(toStep)];
  const nest = (left: readonly Step[]): object => {
    const [only, ...others] = left;
    if (only !== undefined && others.length === 0) return toStep(only);
    const json = literal(JSON.stringify(toChain(chainFunction, left, chain)));
    return { input: `SELECT ${chainFunction}(${json}::pg_catalog.jsonb, "group" => ${literal(chain.group)})` };
  };
  const begin = { ...toStep(first), alone };
  if (firstIgnored > 0) return [begin, ...steps.slice(1, firstIgnored).map(toStep), nest(steps.slice(firstIgnored))];
  return [begin, { ...nest(rest), upon: "end" }];
}

const toStep = ({ input, remote, timeout, args }: Step): object => ({ input, remote, timeout, args });
