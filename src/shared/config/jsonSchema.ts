import { z } from "zod";
import { configurationSchema } from "./fileSchema.js";

/** Returns the JSON Schema of configuration files, as the text of the schema file in the package. */
export function jsonSchemaText(): string {
  const schema = z.toJSONSchema(configurationSchema, { io: "input" });
  const { $schema, ...rest } = schema;
  return `${JSON.stringify({ $schema, title: "pg-task's configuration", ...rest }, null, 2)}\n`;
}
