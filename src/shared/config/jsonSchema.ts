import { z } from "zod";
import { configurationSchema } from "./fileSchema.js";

/** Returns the JSON Schema of a configuration file, as the text of the file shipped with the package. */
export function jsonSchemaText(): string {
  const schema = z.toJSONSchema(configurationSchema, { io: "input" });
  const { $schema, ...rest } = schema;
  return `${JSON.stringify({ $schema, title: "pg-task's configuration", ...rest }, null, 2)}\n`;
}
