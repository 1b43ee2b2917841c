import { parseSqlstates } from "../parseSqlstates.js";
import { z } from "zod";
import { allowedValues, entryKeys } from "./describeAllowedValues.js";
import { roughSeconds } from "./intervalText.js";
import { entryParameters, fileParameters, keysOf } from "./parameters.js";
import { logLevels, weightBounds, type Parameter } from "./parameterTable.js";
import { basePattern, headerPattern, hostsPattern, listenPattern, parseNetworks } from "./listenAddress.js";
import { tokenPattern } from "./secretValue.js";
import { parseSize, sizePattern } from "./sizeText.js";
import { endStates, webhookKeys, webhookSecretPattern, webhookUrlPattern } from "./webhooks.js";

export type RawEntry = Readonly<Record<string, unknown>> & {
  readonly data?: string;
  readonly user?: string;
  readonly schema?: string;
  readonly table?: string;
  readonly sleep?: number;
  readonly reset?: string;
  readonly run?: number;
  readonly create?: boolean;
  readonly users?: boolean;
  readonly password?: string | { readonly env: string };
  readonly url?: string;
};

export type RawFile = Readonly<Record<string, unknown>> & {
  readonly url?: string;
  readonly "pg_task.json"?: readonly RawEntry[];
};

// Built from a string because the linter forbids control characters in a regular expression literal.
const asciiOrEmpty = new RegExp(String.raw`^[\u0001-\u007f]?$`);
const withoutZero = /^[^\0]*$/;

const nameText = z
  .string()
  .min(1)
  .max(63)
  .regex(withoutZero)
  .refine((text) => Buffer.byteLength(text) <= 63);

const environmentVariable = z.strictObject({ env: z.string().min(1) });
const password = z.union([z.string().min(1).regex(withoutZero), environmentVariable]);
const token = z.union([z.string().regex(tokenPattern), environmentVariable]);

const listOf = <Item extends z.ZodType>(item: Item) => z.array(item).min(1);

const webhook = z.strictObject({
  url: z
    .string()
    .regex(webhookUrlPattern)
    .refine((text) => URL.canParse(text))
    .meta({ description: webhookKeys.url }),
  secret: z
    .union([z.string().regex(webhookSecretPattern), environmentVariable])
    .meta({ description: webhookKeys.secret }),
  name: nameText.optional().meta({ description: `${webhookKeys.name}; the host of the URL by default` }),
  states: listOf(z.enum(endStates))
    .optional()
    .meta({ description: `${webhookKeys.states}; all by default` }),
  groups: listOf(z.string().regex(withoutZero))
    .optional()
    .meta({ description: `${webhookKeys.groups}; all by default` }),
  tables: listOf(z.string().regex(withoutZero))
    .optional()
    .meta({ description: `${webhookKeys.tables}; all by default` }),
});

function interval(parameter: Parameter): z.ZodType {
  return z.string().refine((text) => {
    const seconds = roughSeconds(text);
    if (seconds === null) return false;
    return parameter.aboveMin ? seconds > 0 : seconds >= 0;
  });
}

function size(parameter: Parameter): z.ZodType {
  const { min = 0, max = Number.MAX_SAFE_INTEGER } = parameter;
  const text = z
    .string()
    .regex(sizePattern)
    .refine((given) => {
      const bytes = parseSize(given);
      return bytes !== null && bytes >= min && bytes <= max;
    });
  return z.union([z.int().min(min).max(max), text]);
}

function schemaOf(parameter: Parameter): z.ZodType {
  switch (parameter.type) {
    case "bool":
      return z.boolean();
    case "int":
      return z
        .int()
        .min(parameter.min ?? 0)
        .max(parameter.max ?? Number.MAX_SAFE_INTEGER);
    case "interval":
      return interval(parameter);
    case "char":
      return z.string().regex(asciiOrEmpty);
    case "text":
      return z
        .string()
        .min(parameter.min ?? 0)
        .regex(withoutZero);
    case "name":
      return nameText;
    case "expression":
      return z.string().regex(/\S/).regex(withoutZero);
    case "size":
      return size(parameter);
    case "level":
      return z.enum(logLevels);
    case "listen":
      return z.string().regex(listenPattern);
    case "hosts":
      return z.string().regex(hostsPattern);
    case "path":
      return z.string().regex(basePattern);
    case "header":
      return z.string().regex(headerPattern);
    case "networks":
      return z.string().refine((text) => parseNetworks(text) !== null);
    case "sqlstates":
      return z.string().refine((text) => parseSqlstates(text) !== null);
    case "secret":
      return token;
    case "weights":
      return z.record(z.string(), z.number().min(weightBounds.min).max(weightBounds.max));
    case "webhooks":
      return z.array(webhook);
    case "json":
      return z.array(entrySchema);
    default:
      return parameter.type satisfies never;
  }
}

function described(parameter: Parameter): z.ZodType {
  const given = parameter.defaultText === undefined ? { default: parameter.default } : {};
  const description = `${parameter.meaning} (${allowedValues(parameter)})`;
  return schemaOf(parameter)
    .optional()
    .meta({ description, ...given });
}

function shapeOf(list: readonly Parameter[]): Record<string, z.ZodType> {
  return Object.fromEntries(list.flatMap((parameter) => keysOf(parameter).map((name) => [name, described(parameter)])));
}

const ownSchemas: Readonly<Record<string, z.ZodType>> = {
  create: z.boolean(),
  users: z.boolean(),
  password,
  url: z.string().regex(/^postgres(ql)?:\/\//),
};

function entryShape(): Record<string, z.ZodType> {
  return Object.fromEntries(
    entryKeys.map(({ name, parameter, meaning, allowed }) => {
      const schema = parameter === undefined ? ownSchemas[name] : schemaOf(parameter);
      if (schema === undefined) throw new Error(`no schema for the entry's key ${name}`);
      return [name, schema.optional().meta({ description: `${meaning} (${allowed})` })];
    }),
  );
}

const entrySchema = z
  .strictObject({ ...entryShape(), ...shapeOf(entryParameters) })
  .meta({ id: "entry", description: "one task table: one manager" });

/** A file that contains an object, with full names of parameters. */
export const fileSchema = z.strictObject({
  $schema: z.string().optional().meta({ description: "for editors: where the schema is" }),
  url: z
    .string()
    .regex(/^postgres(ql)?:\/\//)
    .optional()
    .meta({
      description: "the control connection (a URL like postgresql://user:password@host:port/database)",
    }),
  ...shapeOf(fileParameters),
  "pg_task.json": z.array(entrySchema).optional().meta({ description: "the entries, one for each task table" }),
});

/** A file that contains entries only. */
export const arraySchema = z.array(entrySchema);

const configurationSchema = z.union([fileSchema, arraySchema]);

export function jsonSchemaText(): string {
  const { $schema, ...rest } = z.toJSONSchema(configurationSchema, { io: "input" });
  return `${JSON.stringify({ $schema, title: "pg-task's configuration", ...rest }, null, 2)}\n`;
}
