import { z } from "zod";

/** The schemas of the API's responses, with the names that they have in the OpenAPI document. */
export const models = z.registry<{ id: string }>();

/** Gives a schema its name in the OpenAPI document. */
export function model<T extends z.ZodType>(id: string, schema: T): T {
  models.add(schema, { id });
  return schema;
}

export const timeSchema = z.string().meta({ description: "ISO 8601, or infinity" });
export const taskIdSchema = z
  .string()
  .regex(/^(0|-?[1-9]\d{0,18})$/, { abort: true, error: "expected a task id, a whole number" })
  .refine((text) => BigInt.asIntN(64, BigInt(text)) === BigInt(text), "expected a bigint")
  .meta({ description: "a bigint as a string" });

/** Matches a number as everybody writes it: no sign, no spaces, no exponent, no leading zero, no other base. */
const plainNumber = /^(0|[1-9]\d{0,14})$/;

/** Returns the number that a text in a query stands for, or the text itself if it is not written plainly. */
const toNumber = (text: unknown): unknown => (typeof text === "string" && plainNumber.test(text) ? Number(text) : text);

/** Returns the schema of a whole number from 1 to `max` in a query. */
export function wholeNumber(max: number, fallback: number): z.ZodDefault<z.ZodType<number>> {
  const error = `expected a whole number from 1 to ${max}`;
  const number = z.int({ error }).min(1, { error }).max(max, { error });
  return z.preprocess(toNumber, number).default(fallback);
}
