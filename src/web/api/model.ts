import { z } from "zod";

export const models = z.registry<{ id: string }>();

export function model<T extends z.ZodType>(id: string, schema: T): T {
  models.add(schema, { id });
  return schema;
}

export const object = <Shape extends z.core.$ZodLooseShape>(id: string, shape: Shape): z.ZodObject<Shape> =>
  model(id, z.object(shape));

const described = <T extends z.ZodType>(schema: T, description: string | undefined): T =>
  description === undefined ? schema : schema.meta({ description });

export const text = (meaning?: string): z.ZodString => described(z.string(), meaning);
export const textOrNull = (meaning?: string): z.ZodNullable<z.ZodString> => described(z.string().nullable(), meaning);
export const whole = (meaning?: string): z.ZodInt => described(z.int(), meaning);
export const wholeOrNull = (meaning?: string): z.ZodNullable<z.ZodInt> => described(z.int().nullable(), meaning);
export const number = (meaning?: string): z.ZodNumber => described(z.number(), meaning);
export const numberOrNull = (meaning?: string): z.ZodNullable<z.ZodNumber> => described(z.number().nullable(), meaning);
export const flag = (meaning?: string): z.ZodBoolean => described(z.boolean(), meaning);
export const list = <T extends z.ZodType>(items: T, meaning?: string): z.ZodArray<T> =>
  described(z.array(items), meaning);
export const readonlyList = <T extends z.ZodType>(items: T, meaning?: string): z.ZodReadonly<z.ZodArray<T>> =>
  described(z.array(items).readonly(), meaning);

export const timeSchema = text("ISO 8601, or infinity");
export const timeOrNull = (meaning?: string): z.ZodNullable<z.ZodString> => described(timeSchema.nullable(), meaning);

export const taskIdSchema = z
  .string()
  .regex(/^(0|-?[1-9]\d{0,18})$/, { abort: true, error: "expected a task id, a whole number" })
  .refine((id) => BigInt.asIntN(64, BigInt(id)) === BigInt(id), "expected a bigint")
  .meta({ description: "a bigint as a string" });

/** A text value in PostgreSQL cannot contain zero bytes. */
export const textSchema = z.string().refine((value) => !value.includes("\0"), "expected text without zero bytes");

export function searchText(max: number): z.ZodString {
  const error = `expected 1 to ${max.toLocaleString("en")} characters`;
  return textSchema.min(1, { error }).max(max, { error });
}

/** The year 0 is refused because PostgreSQL has no such year. */
export const planBoundSchema = z.iso
  .datetime({ offset: true, error: "expected an ISO 8601 time such as 2026-11-23T10:00:00Z" })
  .refine((value) => !value.startsWith("0000"), "expected a year after 0000");

/** No sign, no spaces, no exponent, no leading zero, no other base. */
const plainNumber = /^(0|[1-9]\d{0,14})$/;

const toNumber = (given: unknown): unknown =>
  typeof given === "string" && plainNumber.test(given) ? Number(given) : given;

export function wholeNumber(max: number, fallback: number): z.ZodDefault<z.ZodType<number>> {
  const error = `expected a whole number from 1 to ${max}`;
  const schema = z.int({ error }).min(1, { error }).max(max, { error });
  return z.preprocess(toNumber, schema).default(fallback);
}

export const valueErrorSchema = z.object({
  pointer: textOrNull("JSON pointer to the value in the body, such as `#/timeout`; null if it is not known"),
  detail: text("what is wrong"),
});

/** RFC 9457, with the members `code` and `errors`. */
export const problemSchema = object("Problem", {
  type: z.literal("about:blank"),
  title: text("the HTTP status in words"),
  status: whole(),
  detail: text("what is wrong, in English"),
  code: text("what is wrong, for programs"),
  errors: z.array(valueErrorSchema).optional().meta({ description: "all that is wrong with the values of a new task" }),
});
