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
  .regex(/^-?\d{1,19}$/, { abort: true, error: "expected a task id, a whole number" })
  .refine((text) => BigInt.asIntN(64, BigInt(text)) === BigInt(text), "expected a bigint")
  .meta({ description: "a bigint as a string" });
