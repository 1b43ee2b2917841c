import type { OptionCheck } from "./optionCheck.js";

/** Refuses values in `role`, which is reserved. */
export const roleCheck: OptionCheck = {
  watched: ["role"],
  isUsed: "NEW.role IS NOT NULL",
  body: `
  IF NEW.role IS NOT NULL THEN
    RAISE EXCEPTION 'role is not supported yet' USING ERRCODE = 'feature_not_supported';
  END IF;`,
};
