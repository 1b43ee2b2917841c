import { EventEmitter } from "node:events";
import { after } from "node:test";
import { Connection } from "pg";
import type { Client } from "../../src/shared/postgres/client.js";
import { identifier, literal } from "../../src/shared/postgres/quoting.js";

const mark = "shadow of ";
/** A function of the server that fails, whatever its parameters are. */
const failing = "suppress_redundant_updates_trigger";

/**
 * Matches the errors with which every use of a shadow fails. A role that is no superuser may not execute shadows. The
 * server checks this when a statement begins, so for such a role, parts of a statement are found that are not reached.
 */
export const shadowError = new RegExp(`${mark}|${failing}|permission denied for function`);

/** Types that a shadow has instead of polymorphic ones. */
const kinds = [
  ..."bigint integer smallint boolean text name oid jsonb json interval timestamptz".split(" "),
  "double precision",
  '"char"',
  "public.state",
];
const elements = /^(?:"any"|any(?:compatible)?(?:element|nonarray|enum)?)$/;
const arrays = /^any(?:compatible)?array$/;

interface Routine {
  readonly name: string;
  /** Types of the parameters. The first one of a prefix operator is null. */
  readonly types: readonly (string | null)[];
  readonly result: string;
  readonly set: boolean;
  readonly variadic: boolean;
  readonly defaults: number;
  readonly operator: boolean;
}

/**
 * Creates in `public` what a role with CREATE on this schema can create to have its code run by others: a function, an
 * operator, a type and a relation for each of pg_catalog. A `search_path` with `public` in front prefers all of them.
 * With any other one, the server prefers those with the exact types of a call to polymorphic ones, so there is a shadow
 * of a polymorphic function or operator for each type that a task table has.
 */
export async function createShadows(client: Client): Promise<void> {
  await client.query(`SET search_path = pg_catalog, pg_temp; SET check_function_bodies = off;
    ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
    CREATE FUNCTION public.shadow(what text) RETURNS boolean LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION '${mark}%', what; END $$;
    CREATE TEMPORARY TABLE shadow (place bigserial, attempts text[])`);
  const { rows: routines } = await client.query<Routine>(
    `SELECT proname AS name, ARRAY(SELECT format_type(t, NULL) FROM unnest(proargtypes) WITH ORDINALITY AS a(t, n) ORDER BY n) AS types,
       format_type(prorettype, NULL) AS result, proretset AS set, provariadic <> 0 AS variadic, pronargdefaults AS defaults, false AS operator
     FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
     UNION ALL
     SELECT oprname, ARRAY[CASE WHEN oprleft <> 0 THEN format_type(oprleft, NULL) END, format_type(oprright, NULL)],
       format_type(oprresult, NULL), false, false, 0, true
     FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprright <> 0`,
  );
  const { rows: others } = await client.query<{ statement: string }>(
    `SELECT format('CREATE DOMAIN public.%1$I AS pg_catalog.%1$I CHECK (public.shadow(%2$L))', typname, concat('type ', typname)) AS statement
     FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'r') AND typcategory <> 'A'
     UNION ALL
     SELECT format('CREATE VIEW public.%1$I AS SELECT * FROM pg_catalog.%1$I WHERE public.shadow(%2$L)', relname, concat('relation ', relname))
     FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')`,
  );
  const attempts = [...routines.flatMap(statements), ...others.map(({ statement }) => [statement])];
  await client.query(
    "INSERT INTO pg_temp.shadow (attempts) SELECT ARRAY(SELECT json_array_elements_text(a)) FROM json_array_elements($1) AS a",
    [JSON.stringify(attempts)],
  );
  // What the server refuses to create, nobody can create.
  await client.query(`DO $$
    DECLARE made record; attempt text;
    BEGIN
      FOR made IN SELECT attempts FROM pg_temp.shadow ORDER BY place LOOP
        FOREACH attempt IN ARRAY made.attempts LOOP
          BEGIN
            EXECUTE attempt;
            EXIT;
          EXCEPTION WHEN OTHERS THEN
            NULL;
          END;
        END LOOP;
      END LOOP;
    END $$; DROP TABLE pg_temp.shadow`);
}

/** Returns the statements for the shadows of a function or operator, in order. Of each group, the first that works counts. */
function statements(routine: Routine): string[][] {
  return variants(routine).flatMap(({ name, types, result, set, variadic, operator }) => {
    const parameters = types.flatMap((type) => type ?? []);
    const what = `${mark}${operator ? "operator" : "function"} ${name}(${parameters.join(", ")})`;
    const own = identifier(operator ? what : name);
    const list = parameters.map((type, n) => (variadic && n === parameters.length - 1 ? `VARIADIC ${type}` : type));
    const head = `CREATE FUNCTION public.${own}(${list.join(", ")}) RETURNS ${set ? "SETOF " : ""}${result} LANGUAGE`;
    const create = [
      `${head} plpgsql AS ${literal(` BEGIN RAISE EXCEPTION '%', ${literal(what)}; END `)}`,
      // PL/pgSQL has no parameters of some types.
      `${head} internal AS '${failing}'`,
    ];
    if (!operator) return [create];
    const sides = types.flatMap((type, n) => (type === null ? [] : `${n === 0 ? "LEFTARG" : "RIGHTARG"} = ${type}`));
    return [create, [`CREATE OPERATOR public.${name} (FUNCTION = public.${own}, ${sides.join(", ")})`]];
  });
}

const isPolymorphic = (type: string | null): boolean => type !== null && (elements.test(type) || arrays.test(type));

/** Returns the routine with each number of parameters that it can be called with, and with each kind of types. */
function variants(routine: Routine): Routine[] {
  const { types, result, variadic, defaults } = routine;
  const shorter = Array.from({ length: defaults }, (_, n) => ({
    ...routine,
    variadic: false,
    types: types.slice(0, -1 - n),
  }));
  const longer = variadic
    ? Array.from({ length: 5 }, (_, n) => {
        const element = (types.at(-1) ?? "").replace(/\[\]$|array$/, "").replace(/^any$/, "anyelement");
        return {
          ...routine,
          variadic: false,
          types: [...types.slice(0, -1), ...Array.from({ length: n }, () => element)],
        };
      })
    : [];
  const all = [routine, ...shorter, ...longer];
  const exact = all
    .filter((each) => each.types.some(isPolymorphic))
    .flatMap((each) =>
      kinds.map((kind) => {
        const of = <T extends string | null>(type: T) =>
          type === null ? type : elements.test(type) ? kind : arrays.test(type) ? `${kind}[]` : type;
        return { ...each, variadic: false, types: each.types.map(of), result: of(result) ?? result };
      }),
    );
  return [...all, ...exact];
}

/** Returns a list to which the messages of errors are added that the server sends to connections of this thread. */
export function recordErrors(): readonly string[] {
  const messages: string[] = [];
  Connection.prototype.emit = function (this: Connection, name: string | symbol, ...values: unknown[]): boolean {
    const [value] = values;
    if (name === "errorMessage" && value instanceof Error) messages.push(value.message);
    return EventEmitter.prototype.emit.call(this, name, ...values);
  };
  after(() => Reflect.deleteProperty(Connection.prototype, "emit"));
  return messages;
}
